"""A file that the gateway's workers share is changed by one of them at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


@contextmanager
def locked(file: int | IO[Any]) -> Iterator[None]:
    """Waits for the other workers; a worker that dies lets go of it."""
    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)
