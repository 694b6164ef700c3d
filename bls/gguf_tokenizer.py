"""The tokenizer that a GGUF file describes, rebuilt for the library that its model was trained with.

`tokenizer.ggml.model` is "gpt2" for a byte-level BPE, which becomes a `tokenizers` pipeline, and "llama" for a
SentencePiece BPE, which becomes a SentencePiece model again: its pieces, scores and types are all there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers


class BadTokenizer(ValueError):
    """The tokenizer is missing, damaged or of a kind that isn't known; the message names the file."""


@dataclass(frozen=True)
class GgufTokenizer:
    """Either `core` or the bytes of a SentencePiece `model`."""

    core: tokenizers.Tokenizer | None
    model: bytes | None
    bos_token: str | None
    eos_token: str | None
    adds_bos: bool


_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # ggml's token types; they are SentencePiece's own numbers.

# What the models' own tokenizer.json files hold.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def read(metadata: dict[str, Any], file_name: str) -> GgufTokenizer:
    """Raises BadTokenizer for a tokenizer that isn't here, by its name."""
    kind = metadata.get("tokenizer.ggml.model")
    try:
        tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
        pre = metadata.get("tokenizer.ggml.pre", "default")
        core = _byte_level(metadata, tokens, types, pre) if kind == "gpt2" else None
        model = _sentencepiece(metadata, tokens, types) if kind == "llama" else None
    except KeyError as error:
        raise BadTokenizer(f"{file_name}: {error.args[0]} is missing or not known") from None
    if core is None and model is None:
        raise BadTokenizer(f"{file_name}: tokenizer.ggml.model is {kind!r}; known: 'gpt2', 'llama'")
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre == "llama-bpe")
    bos, eos = (_named(metadata, tokens, f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    return GgufTokenizer(core, model, bos, eos, bool(adds_bos))


def _named(metadata: dict[str, Any], tokens: list[str], key: str) -> str | None:
    token = metadata.get(key)
    return tokens[token] if isinstance(token, int) and 0 <= token < len(tokens) else None


def _byte_level(metadata: dict[str, Any], tokens: list[str], types: list[int], pre: str) -> tokenizers.Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in ("llama-bpe", "qwen2"))
    first = {
        "smollm": pre_tokenizers.Digits(individual_digits=True),
        "llama-bpe": pre_tokenizers.Split(Regex(_LLAMA3), "isolated"),
        "qwen2": pre_tokenizers.Split(Regex(_QWEN2), "isolated"),
        "gpt-2": None,
        "default": None,
    }
    if pre not in first:
        raise KeyError(f"tokenizer.ggml.pre {pre!r} (known: {', '.join(first)})")
    core.pre_tokenizer = pre_tokenizers.Sequence([first[pre], byte_level]) if first[pre] else byte_level
    core.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        core.normalizer = normalizers.NFC()
    for special in (False, True):
        kinds = (_CONTROL, _UNKNOWN) if special else (_USER_DEFINED,)
        named = [token for token, kind in zip(tokens, types, strict=True) if kind in kinds]
        core.add_tokens([AddedToken(token, special=special, normalized=False) for token in named])
    return core


def _sentencepiece(metadata: dict[str, Any], tokens: list[str], types: list[int]) -> bytes:
    """A serialized ModelProto of sentencepiece_model.proto: pieces = 1, trainer_spec = 2, normalizer_spec = 3."""
    scores = metadata["tokenizer.ggml.scores"]
    pieces = b"".join(
        _field(1, _field(1, token.encode()) + _float(2, score) + _number(3, kind))
        for token, score, kind in zip(tokens, scores, types, strict=True)
    )
    bpe, has_bytes = 2, any(kind == 6 for kind in types)
    ids = {40: "unknown", 41: "bos", 42: "eos", 43: "padding"}
    trainer = _number(3, bpe) + _number(35, has_bytes)
    trainer += b"".join(_number(number, metadata.get(f"tokenizer.ggml.{name}_token_id", -1)) for number, name in ids.items())
    names = {45: "unknown", 46: "bos", 47: "eos"}
    for number, name in names.items():
        piece = _named(metadata, tokens, f"tokenizer.ggml.{name}_token_id")
        trainer += _field(number, piece.encode()) if piece else b""
    dummy_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    removes = bool(metadata.get("tokenizer.ggml.remove_extra_whitespaces", False))
    normalizer = _field(1, b"identity") + _number(3, dummy_prefix) + _number(4, removes) + _number(5, True)
    return pieces + _field(2, trainer) + _field(3, normalizer)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data
