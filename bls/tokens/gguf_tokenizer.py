"""The tokenizer that a GGUF file describes, rebuilt for the library that its model was trained with.

`tokenizer.ggml.model` is "gpt2" for a byte-level BPE, which becomes a `tokenizers` pipeline, and "llama" for a
SentencePiece BPE, which becomes a SentencePiece model again: its pieces, scores and types are all there.
"""

from __future__ import annotations

import struct
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from bls.tokens.tokenizer import BadTokenizer, Settings

Metadata = dict[str, Any]
_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6  # ggml's token types; they are SentencePiece's own numbers.

# What the models' own tokenizer.json files hold.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def settings(metadata: Metadata) -> Settings:
    """Where the file doesn't say whether a BOS is added, llama.cpp's rule holds."""
    default = metadata.get(f"{_PREFIX}model") == "llama" or metadata.get(f"{_PREFIX}pre") == "llama-bpe"
    adds_bos = bool(metadata.get(f"{_PREFIX}add_bos_token", default))
    return Settings(_named(metadata, "bos"), _named(metadata, "eos"), adds_bos, metadata.get("tokenizer.chat_template"))


def _named(metadata: Metadata, role: str) -> str | None:
    token, tokens = metadata.get(f"{_PREFIX}{role}_token_id", -1), metadata.get(f"{_PREFIX}tokens", [])
    return tokens[token] if 0 <= token < len(tokens) else None


def byte_level(metadata: Metadata) -> tokenizers.Tokenizer:
    """Raises BadTokenizer for a pre-tokenizer that isn't known, KeyError for a missing key."""
    tokens, types = metadata[f"{_PREFIX}tokens"], metadata[f"{_PREFIX}token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata[f"{_PREFIX}merges"]]
    pre = metadata.get(f"{_PREFIX}pre", "default")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
    core.pre_tokenizer = _pre_tokenizer(pre)
    core.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        core.normalizer = normalizers.NFC()
    core.add_tokens(_added(tokens, types, (_USER_DEFINED,), special=False))
    core.add_tokens(_added(tokens, types, (_CONTROL, _UNKNOWN), special=True))
    return core


def _added(tokens: list[str], types: list[int], kinds: tuple[int, ...], special: bool) -> list[AddedToken]:
    named = [token for token, kind in zip(tokens, types, strict=True) if kind in kinds]
    return [AddedToken(token, special=special, normalized=False) for token in named]


def _pre_tokenizer(name: str) -> Any:
    if name in ("gpt-2", "default"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    patterns = {"llama-bpe": _LLAMA3, "qwen2": _QWEN2}
    if name not in patterns:
        raise BadTokenizer(
            f"{_PREFIX}pre is {name!r}; known: gpt-2, default, smollm, {', '.join(patterns)}. "
            "Use a Hugging Face folder of the same model instead"
        )
    split = pre_tokenizers.Split(Regex(patterns[name]), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece(metadata: Metadata) -> bytes:
    """A serialized ModelProto of sentencepiece_model.proto; the numbers are its fields'. Raises KeyError.

    Not by sentencepiece's own sentencepiece_model_pb2: it refuses a protobuf older than the one that it was made by
    (7.36 for sentencepiece 0.2.3), so it would tie that of NVIDIA's image, and ONNX's here, to it.
    """
    tokens, types = metadata[f"{_PREFIX}tokens"], metadata[f"{_PREFIX}token_type"]
    entries = zip(tokens, metadata[f"{_PREFIX}scores"], types, strict=True)
    pieces = [_data(1, token.encode()) + _float(2, score) + _number(3, kind) for token, score, kind in entries]
    bpe = 2
    trainer = [_number(3, bpe), _number(35, _BYTE in types)]
    for role, (id_field, piece_field) in {"unknown": (40, 45), "bos": (41, 46), "eos": (42, 47)}.items():
        name = _named(metadata, role)
        trainer += [_number(id_field, -1)] if name is None else [
            _number(id_field, metadata[f"{_PREFIX}{role}_token_id"]), _data(piece_field, name.encode())
        ]  # fmt: skip
    normalizer = [
        _data(1, b"identity"),
        _number(3, metadata.get(f"{_PREFIX}add_space_prefix", True)),  # add_dummy_prefix
        _number(4, metadata.get(f"{_PREFIX}remove_extra_whitespaces", False)),
        _number(5, True),  # escape_whitespaces
    ]
    return b"".join(
        [*(_data(1, piece) for piece in pieces), _data(2, b"".join(trainer)), _data(3, b"".join(normalizer))]
    )


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _data(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # Negative numbers are written as 64 bits.
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
