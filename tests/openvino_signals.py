"""For test modules that make pipelines or tokenizers of OpenVINO in their own process: they import the fixture."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import pytest


class _SignalStack(ctypes.Structure):
    """stack_t of signal.h."""

    _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_LIBC = ctypes.CDLL(None)


@pytest.fixture(scope="module", autouse=True)
def signals_find_their_stack_after_openvino() -> Iterator[None]:
    """Each model that OpenVINO compiles has its own stack for signals, and puts back at its end what it found.

    Of two that overlap the second one so puts back a stack that is gone, and the next signal ends the process.
    """
    before = _SignalStack()
    _LIBC.sigaltstack(None, ctypes.byref(before))
    yield
    gc.collect()
    _LIBC.sigaltstack(ctypes.byref(before), None)
