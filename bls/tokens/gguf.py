"""The metadata at the head of a GGUF file, without its weights, and whether those are all there.

The layout is GGUF 2 and 3 of ggml's docs/gguf.md: magic, version, counts, then key, type and value, little-endian; then
each tensor's name, dimensions, type and place.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

_STRING, _ARRAY = 8, 9
_SCALARS = {
    kind: struct.Struct("<" + code)
    for kind, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_MAX_ITEMS = 1 << 24  # Beyond any vocabulary: a count above it is a damaged file, not a reason to take all memory.
_ALIGNMENT = 32  # Of the weights, where general.alignment doesn't say.
# ggml's type of a tensor -> how many numbers make a block, and its bytes. Of others only the beginning is checked.
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    30: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    20: (32, 18),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
}


class BadGguf(ValueError):
    """The file isn't GGUF, or it is damaged; the message names the file."""


def read_metadata(path: Path) -> dict[str, Any]:
    """All keys of the file's head. Strings are str, arrays are lists. Raises BadGguf, OSError."""
    with path.open("rb") as file:
        try:
            return dict(_Head(file).pairs())
        except (struct.error, EOFError, KeyError, UnicodeDecodeError, ValueError) as error:
            raise BadGguf(f"{path.name} is not a readable GGUF file: {error}") from None


def check_size(path: Path) -> None:
    """Raises BadGguf for a file that ends before its last tensor does, as after a copy that broke off; OSError."""
    with path.open("rb") as file:
        try:
            needed = _Head(file).bytes_of_all()
        except (struct.error, EOFError, KeyError, UnicodeDecodeError, ValueError) as error:
            raise BadGguf(f"{path.name}: not a readable GGUF file: {error}") from None
        size = file.seek(0, os.SEEK_END)
    if size < needed:
        raise BadGguf(f"{path.name}: the file has {size} bytes, its tensors need {needed}: it is cut off")


def tokenizer_digest(path: Path) -> str:
    """sha256 of what the file says of its tokenizer: equal for two weights of one model family."""
    digest = hashlib.sha256()
    for key, value in sorted(read_metadata(path).items()):
        if key.startswith("tokenizer."):
            digest.update(f"{key}={value!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


class _Head:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tensors = 0

    def bytes_of_all(self) -> int:
        """What the file needs at least, with the last of its tensors."""
        alignment = int(dict(self.pairs()).get("general.alignment", _ALIGNMENT))
        ends = [self._tensor_end() for _ in range(self._tensors)]
        head = self._file.tell()
        return -(-head // alignment) * alignment + max(ends) if ends else head

    def _tensor_end(self) -> int:
        self._string()
        numbers: int = math.prod(self._number(_U64) for _ in range(self._number(_U32)))
        in_block, block_bytes = _BLOCKS.get(self._number(_U32), (1, 0))
        offset: int = self._number(_U64)
        return offset + numbers // in_block * block_bytes

    def pairs(self) -> list[tuple[str, Any]]:
        if self._take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self._number(_U32)
        if version not in (2, 3):
            raise ValueError(f"version {version}; known: 2, 3")
        self._tensors = self._count()
        return [(self._string(), self._value(self._number(_U32))) for _ in range(self._count())]

    def _value(self, kind: int) -> Any:
        if kind == _ARRAY:
            item, count = self._number(_U32), self._count()
            if item in _SCALARS:
                return [number for (number,) in _SCALARS[item].iter_unpack(self._take(count * _SCALARS[item].size))]
            read: Callable[[], Any] = self._string if item == _STRING else lambda: self._value(item)
            return [read() for _ in range(count)]
        return self._string() if kind == _STRING else self._number(_SCALARS[kind])

    def _string(self) -> str:
        return self._take(self._count()).decode("utf-8")

    def _count(self) -> int:
        count: int = self._number(_U64)
        if count > _MAX_ITEMS:
            raise ValueError(f"a count of {count}")
        return count

    def _number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self._take(layout.size))[0]

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError("it ends too early")
        return data
