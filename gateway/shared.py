"""What the processes of one gateway share: the accounts of its keys, its counters, and whether it drains."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field

from gateway.accounts import MAX_WORKERS, Accounts, OwnAccounts, SharedAccounts
from gateway.draining import Drain
from gateway.file_lock import locked

_PAGE = 1 << 20  # bytes of one worker's counters, which take memory as far as they are used
_LENGTH = 4


class Pages:
    """A piece of memory for each worker, that it alone writes and all read."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._file = os.memfd_create("counters")
        os.ftruncate(self._file, workers * _PAGE)
        self._memory = mmap.mmap(self._file, workers * _PAGE)

    def put(self, worker: int, content: bytes) -> None:
        """What doesn't fit is left out: the last that did stays."""
        if len(content) > _PAGE - _LENGTH:
            return
        with locked(self._file):
            at = worker * _PAGE
            self._memory[at : at + _LENGTH + len(content)] = len(content).to_bytes(_LENGTH, "little") + content

    def get(self, worker: int) -> bytes:
        """Nothing where it has put nothing yet."""
        with locked(self._file):
            at = worker * _PAGE + _LENGTH
            return self._memory[at : at + int.from_bytes(self._memory[at - _LENGTH : at], "little")]

    def others(self, worker: int) -> list[bytes]:
        return [page for each in range(self._workers) if each != worker and (page := self.get(each))]


@dataclass
class Shared:
    """As one worker has it; `pages` is None where there is only one."""

    accounts: Accounts = field(default_factory=OwnAccounts)
    pages: Pages | None = None
    worker: int = 0
    drain: Drain = field(default_factory=Drain)


class Workers:
    """Made before they are forked. Raises ValueError for more than there may be."""

    def __init__(self, count: int) -> None:
        if not 1 <= count <= MAX_WORKERS:
            raise ValueError(f"at most {MAX_WORKERS}")
        self.accounts = SharedAccounts()
        self.pages = Pages(count)
        self.drain = Drain()

    def of(self, worker: int) -> Shared:
        """In the worker's own process."""
        self.accounts.worker = worker
        return Shared(self.accounts, self.pages, worker, self.drain)
