"""Reads a .safetensors file: eight bytes of length, a JSON head, then the tensors one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bls.arrays import Array

_TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32}


class BadWeights(ValueError):
    """The file is no safetensors file, or holds a type that isn't known; the message names the file."""


def read(file: Path) -> dict[str, Array]:
    """Each tensor by its name, mapped rather than read. Raises BadWeights."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if not 0 < length < file.stat().st_size:
                raise ValueError("its header is cut off")
            head = json.loads(opened.read(length))
        head.pop("__metadata__", None)
        body = np.memmap(file, np.uint8, "r", offset=8 + length)
        return {name: _tensor(body, **entry) for name, entry in head.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadWeights(f"{file.name} is not a safetensors file: {error}") from None


def _tensor(body: Array, dtype: str, shape: list[int], data_offsets: list[int]) -> Array:
    if dtype not in _TYPES:
        raise ValueError(f"type {dtype}; known: {', '.join(_TYPES)}")
    begin, end = data_offsets
    array: Array = body[begin:end].view(_TYPES[dtype]).reshape(shape)
    return array
