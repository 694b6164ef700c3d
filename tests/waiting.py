"""Waiting for what another process or thread brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], timeout_s: float = 15.0) -> bool:
    """Whether it comes to hold in time."""
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
