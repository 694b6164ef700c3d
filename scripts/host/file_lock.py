"""Locks between processes, held by an open file."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


def open_lock(path: Path) -> IO[bytes]:
    """A file to lock. Where this user can't write it, as in an image that root has set up, it must be there."""
    try:
        return path.open("ab")
    except OSError:
        if path.exists():
            return path.open("rb")
        raise


def try_lock(file: IO[bytes], kind: int) -> bool:
    """Takes the lock, of kind fcntl.LOCK_EX or LOCK_SH, if that is possible at once; whether it was."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
