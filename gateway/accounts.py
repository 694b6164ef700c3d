"""What each key has used: in this process, or in memory that several worker processes share.

Shared accounts lie in a file in memory, each in a slot that is found by its key's name. A lock of the file's bytes
guards them, which the kernel takes away from a process that dies.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from gateway.file_lock import locked
from gateway.ledger import MONTHS_KEPT, Spent, Sum

MINUTE = 60.0
MAX_WORKERS = 64
SLOTS = 4096  # as many keys have an account of their own; those beyond share the last one found


@dataclass
class Bucket:
    """Holds a minute's worth at most; `level` may fall below 0 where an answer was longer than was reckoned."""

    limit: float
    level: float
    at: float

    def fill(self, now: float) -> None:
        self.level = min(self.limit, self.level + max(0.0, now - self.at) * self.limit / MINUTE)
        self.at = now

    def seconds_until(self, amount: float) -> float:
        return max(0.0, (amount - self.level) * MINUTE / self.limit)


@dataclass
class Account:
    """What a key has used. `running` are answers of this process, `elsewhere` those of the other workers."""

    requests: Bucket | None = None
    tokens: Bucket | None = None
    running: int = 0
    elsewhere: int = 0
    spent: Spent = field(default_factory=Spent)


class Accounts(Protocol):
    def of(self, name: str) -> AbstractContextManager[Account]:
        """The account of the key of that name, for the block alone to change."""


class OwnAccounts:
    """Of a process that is alone."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[Account]:
        yield self._accounts.setdefault(name, Account())


_DIGEST = 16
_VALUES = struct.Struct("<6d" + "qqd" * MONTHS_KEPT)
_RUNNING = struct.Struct(f"<{MAX_WORKERS}i")
_SLOT = _DIGEST + _VALUES.size + _RUNNING.size


class SharedAccounts:
    """Made before the workers are forked; each then sets `worker`, its place among them."""

    def __init__(self) -> None:
        self.worker = 0
        self._file = os.memfd_create("accounts")
        os.ftruncate(self._file, SLOTS * _SLOT)
        self._memory = mmap.mmap(self._file, SLOTS * _SLOT)

    @contextmanager
    def of(self, name: str) -> Iterator[Account]:
        digest = hashlib.sha256(name.encode()).digest()[:_DIGEST]
        with locked(self._file):
            place = self._place(digest) + _DIGEST
            running = list(_RUNNING.unpack_from(self._memory, place + _VALUES.size))
            account = _unpacked(_VALUES.unpack_from(self._memory, place))
            account.running = running[self.worker]
            account.elsewhere = sum(running) - account.running
            yield account
            running[self.worker] = account.running
            _VALUES.pack_into(self._memory, place, *_packed(account))
            _RUNNING.pack_into(self._memory, place + _VALUES.size, *running)

    def forget(self, worker: int) -> None:
        """That worker is gone, and its answers with it."""
        with locked(self._file):
            for place in range(_DIGEST + _VALUES.size, len(self._memory), _SLOT):
                struct.pack_into("<i", self._memory, place + 4 * worker, 0)

    def _place(self, digest: bytes) -> int:
        """Where that account's slot begins; it is taken if it is new."""
        first = int.from_bytes(digest[:4], "little")
        for step in range(SLOTS):
            place = (first + step) % SLOTS * _SLOT
            found = self._memory[place : place + _DIGEST]
            if found == digest:
                return place
            if not any(found):
                self._memory[place : place + _DIGEST] = digest
                return place
        return first % SLOTS * _SLOT


def _packed(account: Account) -> list[float]:
    values: list[float] = []
    for bucket in (account.requests, account.tokens):
        values += (bucket.limit, bucket.level, bucket.at) if bucket else (0.0, 0.0, 0.0)
    months = [(int(month.replace("-", "")), each.tokens, each.cost) for month, each in account.spent.months.items()]
    for month in (months + [(0, 0, 0.0)] * MONTHS_KEPT)[:MONTHS_KEPT]:
        values += month
    return values


def _unpacked(values: tuple[float, ...]) -> Account:
    requests, tokens = (Bucket(*values[at : at + 3]) if values[at] else None for at in (0, 3))
    spent = Spent()
    for at in range(6, len(values), 3):
        if month := int(values[at]):
            spent.months[f"{month // 100:04}-{month % 100:02}"] = Sum(int(values[at + 1]), values[at + 2])
    return Account(requests, tokens, spent=spent)
