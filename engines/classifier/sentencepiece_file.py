"""Writes the pieces of a unigram tokenizer as a model of SentencePiece, in the form of its protobuf.

Written field by field, since the library's own classes want a newer protobuf than the server's packages have. What a
character becomes first is compiled by the library itself.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import sentencepiece

from engines.classifier.e5_file import Pieces

sentencepiece.set_min_log_level(1)  # no lines about each step on the person's terminal
_NORMAL, _UNKNOWN, _CONTROL, _UNIGRAM = 1, 2, 3, 1
_LENGTH, _FLOAT = 2, 5  # wire types


def model(pieces: Pieces) -> bytes:
    """Text that spells a special token ("<s>") is read like any other: no client can give one."""
    parts = [_replacements(pieces)]  # parts of one message may follow each other; later ones add to earlier ones
    special = {pieces.begin_id, pieces.end_id, pieces.pad_id, len(pieces.texts) - 1}  # the last one is <mask>
    for number, (text, score) in enumerate(zip(pieces.texts, pieces.scores, strict=True)):
        kind = _UNKNOWN if number == pieces.unknown_id else _CONTROL if number in special else _NORMAL
        parts.append(_bytes(1, _bytes(1, text.encode()) + _key(2, _FLOAT) + struct.pack("<f", score) + _int(3, kind)))
    ids = (pieces.unknown_id, pieces.begin_id, pieces.end_id, pieces.pad_id)
    names = b"".join(_bytes(45 + place, pieces.texts[number].encode()) for place, number in enumerate(ids))
    numbers = b"".join(_int(40 + place, number) for place, number in enumerate(ids))
    parts.append(_bytes(2, _int(3, _UNIGRAM) + _int(4, len(pieces.texts)) + numbers + names))
    return b"".join(parts)


def _replacements(pieces: Pieces) -> bytes:
    """Those of `pieces`; then runs of spaces are one, and a text begins as if a space stood before it."""
    lines = [
        f"{character:X}\t{' '.join(f'{each:X}' for each in by)}\n" for character, by in pieces.replacements.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text("".join(lines), encoding="utf-8")
        normaliser = sentencepiece.SentencePieceNormalizer(
            rule_tsv=str(rules), add_dummy_prefix=True, escape_whitespaces=True, remove_extra_whitespaces=True
        )
    found: bytes = normaliser.serialized_model_proto()
    return found + _bytes(3, _int(3, 1) + _int(4, 1) + _int(5, 1))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _int(field: int, number: int) -> bytes:
    return _key(field, 0) + _varint(number)


def _bytes(field: int, body: bytes) -> bytes:
    return _key(field, _LENGTH) + _varint(len(body)) + body


def encode(model: bytes, text: str) -> list[int]:
    """The ids of a text by such a model."""
    found: list[int] = sentencepiece.SentencePieceProcessor(model_proto=model).encode(text)
    return found
