"""Who used what: a line of JSON for every request that cost something, and never a word of its text.

A file a month, `usage-2026-11.jsonl`; a gateway that starts again takes the month's sums from it, for the budgets.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

MONTHS_KEPT = 3  # a clock that jumps and comes back finds what it left


class BadLedger(Exception):
    """There is no writing there; the message says why."""


def this_month() -> str:
    return time.strftime("%Y-%m", time.gmtime())


@dataclass
class Sum:
    tokens: int = 0
    cost: float = 0.0


class Spent:
    """Of one key, month by month; `tokens` and `cost` are those of the month that it is."""

    def __init__(self, month: Callable[[], str] = this_month) -> None:
        self._month = month
        self.months: dict[str, Sum] = {}

    @property
    def tokens(self) -> int:
        return self._now().tokens

    @property
    def cost(self) -> float:
        return self._now().cost

    def add(self, tokens: int, cost: float) -> None:
        found = self._now()
        found.tokens += tokens
        found.cost += cost

    def _now(self) -> Sum:
        month = self._month()
        if month not in self.months:
            self.months[month] = Sum()
            while len(self.months) > MONTHS_KEPT:
                del self.months[next(iter(self.months))]
        return self.months[month]


class Ledger:
    """Appends to the month's file in `folder`, which is made; without a folder, does nothing. Raises BadLedger."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._torn: Path | None = None  # a file whose last line may have no end
        self.failures = 0
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._path().open("ab"):
                self._torn = self._path()
        except OSError as error:
            raise BadLedger(f"--ledger {folder}: {error.strerror}") from None

    def write(self, entry: dict[str, Any]) -> None:
        """A full disk is logged and counted, and stops nobody's answer."""
        if self._folder is None:
            return
        path, line = self._path(), msgspec.json.encode(entry) + b"\n"
        try:
            with path.open("ab", buffering=0) as file:
                if self._torn == path and not _ends_well(path):
                    line = b"\n" + line
                self._torn = path
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, "the disk is full")
            self._torn = None
        except OSError as error:
            self.failures += 1
            logging.error("the ledger lost a line: %s", error.strerror)

    def sums(self, add: Callable[[str, int, float], None]) -> None:
        """Tells `add` of each line of this month's file: key, tokens, cost. Broken lines are skipped, and said."""
        if self._folder is None:
            return
        broken = 0
        with self._path().open("rb") as lines:
            for line in lines:
                try:
                    entry = msgspec.json.decode(line)
                    add(entry["key"], entry["prompt_tokens"] + entry["completion_tokens"], entry["cost"])
                except (msgspec.DecodeError, KeyError, TypeError):
                    broken += bool(line.strip())
        if broken:
            logging.warning("the ledger has %d lines that can't be read; they count as nothing", broken)

    def _path(self) -> Path:
        assert self._folder is not None
        return self._folder / f"usage-{this_month()}.jsonl"


def _ends_well(path: Path) -> bool:
    """Whether its last line, if it has one, is whole."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
