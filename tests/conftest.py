from __future__ import annotations

import ctypes
import gc
import signal
from collections.abc import Iterator

import pytest


class _SignalStack(ctypes.Structure):
    """stack_t of signal.h."""

    _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_LIBC = ctypes.CDLL(None)


@pytest.fixture(scope="module", autouse=True)
def signal_handlers_of_scripts_go_with_their_tests() -> Iterator[None]:
    """A script's main() that a test calls answers ctrl-C in its own way from then on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def signals_find_their_stack_after_openvino() -> Iterator[None]:
    """Each pipeline of OpenVINO has its own stack for signals, and puts back at its end what it found at its beginning.

    Of two that overlap the second one so puts back a stack that is gone, and the next signal ends the process.
    """
    before = _SignalStack()
    _LIBC.sigaltstack(None, ctypes.byref(before))
    yield
    gc.collect()
    _LIBC.sigaltstack(ctypes.byref(before), None)
