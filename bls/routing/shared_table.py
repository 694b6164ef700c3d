"""What the router processes of one server share: a small file in shared memory that each of them maps.

Each process has a row that it alone writes, so nobody waits for anybody; a reader sums the rows. Locks are the kernel's
(open file description locks on single bytes), so they end with their process, however that ended: a row whose byte is
not locked is a dead process's. Beside the rows stand a few numbers for each model, and a text.

Not a Triton model: asking one costs a decision some 250 us instead of 20, and it is one more process that can die.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bls.arrays import Array
from bls.routing.table_layout import (
    ALIVE,
    ALIVE_AT,
    ANSWERING,
    BUCKET_FIELDS,
    BUCKETS,
    FIRST_BUCKET,
    IN_FLIGHT,
    MAGIC,
    MODELS,
    NAME_BYTES,
    NAMES_AT,
    PROCESS,
    ROW_NUMBERS,
    ROWS,
    ROWS_AT,
    SHARED,
    SHARED_AT,
    SINCE,
    SIZE,
    TAKEN_AT,
    TEXT_AT,
    TEXT_BYTES,
    WAITING,
)

LATELY_SECONDS = 0.5
_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux

# The bytes that are locked: one for each row, each model's probe, and these.
_PROBE_LOCKS = ROWS
_SETUP_LOCK = ROWS + MODELS
_TEXT_LOCK = _SETUP_LOCK + 1
CHECK_LOCK = _SETUP_LOCK + 2  # held by the process that checks a policy


class SharedTable:
    """This process's view of the file at `path`, made if it isn't there. OSError if it can't be, or all rows are taken.
    Without a path it is this process's alone.

    `in_flight`, `waiting` and `since` are [ROWS, MODELS], `buckets` [ROWS, MODELS, BUCKETS, 5], all float64, numbers
    that one store writes.
    `own` are the numbers of this process's row, ROW_NUMBERS for each model, the only ones that it writes; `shared` are
    SHARED numbers for each model. Those two are flat and no arrays, since single numbers are faster so.
    `left_behind`: how many requests a process was answering when it died, whose row this one has taken.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._threads = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if path else os.memfd_create("table")
        self._closing = weakref.finalize(self, os.close, self._file)
        self._closing.atexit = False
        try:
            with self._locked(_SETUP_LOCK):
                if os.fstat(self._file).st_size != SIZE:
                    os.ftruncate(self._file, 0)
                    os.ftruncate(self._file, SIZE)
                    os.pwrite(self._file, MAGIC, 0)
                elif os.pread(self._file, len(MAGIC), 0) != MAGIC:
                    raise OSError(f"{path} is not a table of this version")
                self._map = mmap.mmap(self._file, SIZE)
                self.row = self._take_row()
        except BaseException:
            self._closing()
            raise
        self.shared = memoryview(self._map)[SHARED_AT : SHARED_AT + MODELS * SHARED * 8].cast("d")
        row_at = ROWS_AT + self.row * MODELS * ROW_NUMBERS * 8
        self.own = memoryview(self._map)[row_at : row_at + MODELS * ROW_NUMBERS * 8].cast("d")
        count = ROWS * MODELS * ROW_NUMBERS
        numbers = np.frombuffer(self._map, np.float64, count, ROWS_AT).reshape(ROWS, MODELS, ROW_NUMBERS)
        self.in_flight: Array = numbers[:, :, IN_FLIGHT]
        self.waiting: Array = numbers[:, :, WAITING]
        self.since: Array = numbers[:, :, SINCE]
        self.buckets: Array = numbers[:, :, FIRST_BUCKET:].reshape(ROWS, MODELS, BUCKETS, BUCKET_FIELDS)
        self.left_behind = int(numbers[self.row, 0, ANSWERING])
        numbers[self.row] = 0.0
        numbers[self.row, 0, PROCESS] = os.getpid()
        self.alive: Array = np.array([self.row])  # the rows of living processes, when `look` looked last
        self._slots: dict[str, int] = {}

    def close(self) -> None:
        """Leaves the row to others, as the end of the process would."""
        # By name: the map, which lives as long as an array that looks at it, keeps a copy of the descriptor.
        for byte in (self.row, *range(_PROBE_LOCKS, CHECK_LOCK + 1)):
            self._set_lock(byte, fcntl.F_UNLCK)
        self._closing()

    def look(self) -> None:
        """Finds which processes live: a system call for each row that was ever taken."""
        taken = int.from_bytes(self._map[TAKEN_AT : TAKEN_AT + 8], "little")
        self.alive = np.array([row for row in range(taken) if row == self.row or self._is_locked(row)])
        bits = np.zeros(ROWS, np.uint8)
        bits[self.alive] = 1
        ALIVE.pack_into(self._map, ALIVE_AT, time.monotonic(), np.packbits(bits).tobytes())

    def look_lately(self) -> None:
        """As `look`, by what another process found if it has looked less than LATELY_SECONDS ago: else 40 processes
        that are asked once a second would ask the kernel 1,600 times."""
        looked, bits = ALIVE.unpack_from(self._map, ALIVE_AT)
        if not 0 <= time.monotonic() - looked < LATELY_SECONDS:
            self.look()
            return
        rows = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))
        self.alive = rows if self.row in rows else np.append(rows, self.row)

    def slot(self, model: str) -> int:
        """The number of a model in the table; the same in all processes. OSError beyond MODELS models."""
        if model not in self._slots:
            name = model.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
            with self._locked(_SETUP_LOCK):
                self._slots[model] = self._find_slot(name)
        return self._slots[model]

    def try_lock_probe(self, slot: int) -> bool:
        """Whether this process now is the one that tries a model; it stays so until `unlock_probe` or its end."""
        return self._try_lock(_PROBE_LOCKS + slot)

    def unlock_probe(self, slot: int) -> None:
        self._set_lock(_PROBE_LOCKS + slot, fcntl.F_UNLCK)

    def is_probed(self, slot: int) -> bool:
        """Whether another process tries the model."""
        return self._is_locked(_PROBE_LOCKS + slot)

    @contextlib.contextmanager
    def try_check(self) -> Iterator[bool]:
        """Whether this process may check a policy meanwhile: one at a time."""
        mine = self._try_lock(CHECK_LOCK)
        try:
            yield mine
        finally:
            if mine:
                self._set_lock(CHECK_LOCK, fcntl.F_UNLCK)

    def read_text(self) -> bytes:
        with self._locked(_TEXT_LOCK):
            size = int.from_bytes(self._map[TEXT_AT : TEXT_AT + 8], "little")
            return self._map[TEXT_AT + 8 : TEXT_AT + 8 + size]

    def write_text(self, change: Callable[[bytes], bytes]) -> None:
        """Puts what `change` makes of the text in its place. ValueError if it is too long."""
        with self._locked(_TEXT_LOCK):
            size = int.from_bytes(self._map[TEXT_AT : TEXT_AT + 8], "little")
            text = change(self._map[TEXT_AT + 8 : TEXT_AT + 8 + size])
            if len(text) > TEXT_BYTES - 8:
                raise ValueError(f"{len(text)} bytes are more than the table holds")
            self._map[TEXT_AT : TEXT_AT + 8] = bytes(8)  # A writer that is killed here leaves no text, not half of one.
            self._map[TEXT_AT + 8 : TEXT_AT + 8 + len(text)] = text
            self._map[TEXT_AT : TEXT_AT + 8] = len(text).to_bytes(8, "little")

    def _take_row(self) -> int:
        for row in range(ROWS):
            if self._try_lock(row):
                taken = int.from_bytes(self._map[TAKEN_AT : TAKEN_AT + 8], "little")
                self._map[TAKEN_AT : TAKEN_AT + 8] = max(taken, row + 1).to_bytes(8, "little")
                return row
        raise OSError(f"{self.path}: all {ROWS} rows are taken")

    def _find_slot(self, name: bytes) -> int:
        for slot in range(MODELS):
            at = NAMES_AT + slot * NAME_BYTES
            found = self._map[at : at + NAME_BYTES]
            if not found.strip(b"\0"):
                self._map[at : at + NAME_BYTES] = name
            if found in (name, bytes(NAME_BYTES)):
                return slot
        raise OSError(f"{self.path}: no room for a further model, {MODELS} are known")

    @contextlib.contextmanager
    def _locked(self, byte: int) -> Iterator[None]:
        with self._threads:  # The kernel's lock is the process's, and lets its threads pass.
            self._set_lock(byte, fcntl.F_WRLCK, wait=True)
            try:
                yield
            finally:
                self._set_lock(byte, fcntl.F_UNLCK)

    def _try_lock(self, byte: int) -> bool:
        try:
            self._set_lock(byte, fcntl.F_WRLCK)
            return True
        except BlockingIOError:
            return False

    def _set_lock(self, byte: int, kind: int, wait: bool = False) -> None:
        command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        fcntl.fcntl(self._file, command, _LOCK.pack(kind, os.SEEK_SET, byte, 1, 0))

    def _is_locked(self, byte: int) -> bool:
        """Whether another view of the file holds the lock."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        kind: int = _LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK
