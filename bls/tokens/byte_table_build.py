"""Builds a tokenizer's byte table, see byte_table.py, and proves it equal to the tokenizer, or else makes none.

Used by the model `preprocessing` when it loads, and by scripts/build_engines.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from bls.manifest import Manifest
from bls.tokens import byte_table, tokenizer_files
from bls.tokens.byte_table import ABSENT, BYTE, SPECIAL, TEXT, UNKNOWN, BadByteTable, Header, TokenBytes
from bls.tokens.huggingface import FastTokenizer
from bls.tokens.sentencepiece_tokenizer import SentencePieceTokenizer
from bls.tokens.tokenizer import Tokenizer

VERSION = Header.builder_version  # Raise it there when a table's content changes.
_RANDOM_SEQUENCES = 3000
_BYTES = [bytes([byte]) for byte in b" \xe4\xbd\xa0\xff"]
_SPACE = "\u2581"  # SentencePiece's sign for a space.


class _Inexpressible(Exception):
    """The tokenizer's decode is not what a table can say; the message says what of it."""


def ensure(manifest: Manifest, loaded: Tokenizer | None = None) -> TokenBytes:
    """Opens the manifest's table; builds it first if it's missing, damaged, of another tokenizer or another builder.

    Raises BadTokenizer, OSError.
    """
    path, sha256 = manifest.token_bytes_path, manifest.tokenizer.sha256
    try:
        table = byte_table.open_table(path, sha256)
        if table.header.builder_version == VERSION:
            return table
    except BadByteTable:
        pass
    data = build(loaded or tokenizer_files.load(manifest), sha256)
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # Replaced at once: several processes may build it together.
    draft.write_bytes(data)
    draft.replace(path)
    return byte_table.open_table(path, sha256)


def build(source: Tokenizer, sha256: str) -> bytes:
    """The table's file. Of a tokenizer that no table can stand for it's an UNSUPPORTED one that says why."""
    try:
        data = _describe(source, sha256)
        _prove(source, TokenBytes(data))
        return data
    except _Inexpressible as error:
        return byte_table.serialize(Header(sha256, byte_table.UNSUPPORTED, 0, reason=str(error)), [], [])


def _describe(source: Tokenizer, sha256: str) -> bytes:
    if isinstance(source, SentencePieceTokenizer):
        return _describe_sentencepiece(source, sha256)
    assert isinstance(source, FastTokenizer)
    decoder = json.loads(source.core.to_str())["decoder"] or {}
    steps = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
    names = [step.get("type") for step in steps]
    if names == ["ByteLevel"]:
        characters = _byte_level_characters()
        pieces = [_byte_level_piece(source, token, characters) for token in range(source.vocab_size)]
        kinds = _kinds(source, pieces)
        return byte_table.serialize(Header(sha256, byte_table.BYTE_LEVEL, source.vocab_size), kinds, _filled(pieces))
    strip: dict[str, Any] = steps.pop() if names[-1] == "Strip" else {"start": 0, "stop": 0, "content": " "}
    replaces = [step for step in steps if step.get("type") == "Replace"]
    rest = [step.get("type") for step in steps if step not in replaces]
    plain = all(set(step["pattern"]) == {"String"} for step in replaces)
    if rest != ["ByteFallback", "Fuse"] or not plain or strip["stop"] or strip["content"] != " ":
        raise _Inexpressible(f"decoder {', '.join(map(str, names))}")
    pieces = [_fallback_piece(source, token, replaces) for token in range(source.vocab_size)]
    kinds = [BYTE if _is_byte(source, token) else kind for token, kind in enumerate(_kinds(source, pieces))]
    header = Header(sha256, byte_table.BYTE_FALLBACK, source.vocab_size, strip_left=strip["start"])
    return byte_table.serialize(header, kinds, _filled(pieces))


def _kinds(source: Tokenizer, pieces: Sequence[bytes | None]) -> list[int]:
    special = set(source.special_ids.values())
    return [ABSENT if piece is None else SPECIAL if token in special else TEXT for token, piece in enumerate(pieces)]


def _filled(pieces: Sequence[bytes | None]) -> list[bytes]:
    return [piece or b"" for piece in pieces]


def _byte_level_characters() -> dict[str, int]:
    """GPT-2's letters for bytes: those that print stand for themselves, the rest for 256 upwards in order."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + place): byte for place, byte in enumerate(rest)}


def _byte_level_piece(source: FastTokenizer, token: int, characters: dict[str, int]) -> bytes | None:
    name = source.core.id_to_token(token)
    if name is None:
        return None
    # An added token may hold a character that no byte has; then the token is its own text.
    return bytes(map(characters.__getitem__, name)) if all(c in characters for c in name) else name.encode()


def _is_byte(source: FastTokenizer, token: int) -> bool:
    name = source.core.id_to_token(token)
    return name is not None and len(name) == 6 and name.startswith("<0x") and name.endswith(">") and _is_hex(name[3:5])


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)


def _fallback_piece(source: FastTokenizer, token: int, replaces: list[dict[str, Any]]) -> bytes | None:
    name = source.core.id_to_token(token)
    if name is None:
        return None
    if _is_byte(source, token):
        return bytes([int(name[3:5], 16)])
    for step in replaces:
        name = name.replace(step["pattern"]["String"], step["content"])
    return str(name).encode()


def _describe_sentencepiece(source: SentencePieceTokenizer, sha256: str) -> bytes:
    core, kinds, pieces = source.core, [], []
    unknown = core.decode([core.unk_id()])
    for token in range(source.vocab_size):
        name = core.id_to_piece(token)
        if core.is_byte(token):
            kinds.append(BYTE)
            pieces.append(bytes([int(name[3:5], 16)]))
        elif core.is_unknown(token):
            kinds.append(UNKNOWN)
            pieces.append(unknown.encode())
        else:
            kinds.append(SPECIAL if core.is_control(token) else TEXT)
            pieces.append((name if core.is_control(token) else name.replace(_SPACE, " ")).encode())
    # What the model does with leading spaces is asked of it: its settings can't be read without protobuf.
    strips, strips_all = _sentencepiece_strips(source)
    header = Header(sha256, byte_table.SENTENCEPIECE, source.vocab_size, strip_left=strips, strips_all=strips_all)
    return byte_table.serialize(header, kinds, pieces)


def _sentencepiece_strips(source: SentencePieceTokenizer) -> tuple[int, bool]:
    """How many spaces are taken off the start of a text, and whether all of them are."""
    space = source.core.piece_to_id(_SPACE)
    if source.core.id_to_piece(space) != _SPACE:
        raise _Inexpressible("the model has no piece for a space")
    left = len(source.core.decode([space] * 3))
    return min(3 - left, 1), left == 0


def _prove(source: Tokenizer, table: TokenBytes) -> None:
    """Each token alone, then random sequences cut at random. Raises _Inexpressible with the first that differs."""
    for skips in (True, False):
        for ids in _samples(source, table):
            decoder, cut = table.decoder(skips), len(ids) // 2
            streamed = decoder.push(ids[:cut]) + decoder.push(ids[cut:]) + decoder.finish()
            if streamed != source.decode(ids, skips):
                raise _Inexpressible(f"tokens {ids[:20]} are decoded in a special way")


def _samples(source: Tokenizer, table: TokenBytes) -> Iterator[list[int]]:
    chance = random.Random(0)  # The same proof each time.
    ids = list(range(source.vocab_size))
    yield from ([token] for token in ids)
    # Each token amid others.
    chance.shuffle(ids)
    yield from (ids[place : place + 16] for place in range(0, len(ids), 8))
    # Every short sequence of tokens that differ in how they are joined: starts, runs of bytes and their ends.
    for length in range(2, 5):
        yield from map(list, product(_telling(table), repeat=length))
    by_kind = [[token for token in ids if table.kind(token) == kind] for kind in range(ABSENT + 1)]
    pools = [pool for pool in by_kind if pool]
    for _ in range(_RANDOM_SEQUENCES):
        # Kinds are drawn first, so that the few byte and special tokens meet all others.
        kinds = chance.choices(pools, k=chance.randint(2, 24))
        yield [chance.choice(pool) for pool in kinds]


def _telling(table: TokenBytes) -> list[int]:
    """One token of each sort that decoders treat in a way of its own, so far as the vocabulary has it."""
    sorts: list[Callable[[int, bytes], bool]] = [
        lambda kind, piece: kind == TEXT and piece == b" ",
        lambda kind, piece: kind == TEXT and piece.startswith(b" ") and len(piece) > 1,
        lambda kind, piece: kind == TEXT and piece.isalpha(),
        lambda kind, piece: kind == UNKNOWN,
        lambda kind, piece: kind == SPECIAL,
        # A space, the bytes of U+4F60 and one that never stands in UTF-8.
        *(lambda kind, piece, byte=byte: kind in (TEXT, BYTE) and piece == byte for byte in _BYTES),
    ]
    ids = range(table.header.vocab_size)
    first = [next((token for token in ids if is_one(table.kind(token), table.piece(token))), -1) for is_one in sorts]
    return sorted(set(first))  # -1 is the id outside of the vocabulary, for what it lacks.
