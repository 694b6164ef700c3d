"""Triton's tensors of single numbers and booleans, made once: a process sends the same few with each response."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bls.arrays import Array

MOST = 500  # such as the lengths of pieces; a number that is the 501st is made each time


class KeptTensors:
    """Makes tensors by `make`. What is kept goes through `keep` once, and is given to one thread alone, the first that
    asks for it: Triton writes a tensor to shared memory when it is first sent, without a lock."""

    def __init__(self, make: Callable[[str, Array], Any], keep: Callable[[Any], Any]) -> None:
        self._make = make
        self._keep = keep
        self._kept: dict[tuple[str, int, tuple[int, ...], int], Any] = {}
        self._thread = 0

    def of(self, name: str, array: Array) -> Any:
        """The tensor of that name and content."""
        if array.size != 1 or array.dtype.kind not in "ib":
            return self._make(name, array)
        if (thread := threading.get_ident()) != self._thread:
            if self._thread:
                return self._make(name, array)
            self._thread = thread
        key = name, array.dtype.num, array.shape, array.item()
        tensor = self._kept.get(key)
        if tensor is None:
            tensor = self._make(name, array.copy())  # its array may be filled anew
            if len(self._kept) < MOST:
                self._kept[key] = self._keep(tensor)
        return tensor
