"""Who used what: a line of JSON for every request that cost something, and never a word of its text.

A file a month, `usage-2026-11.jsonl`; a gateway that starts again takes the month's sums from it, for the budgets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec


def this_month() -> str:
    return time.strftime("%Y-%m", time.gmtime())


@dataclass
class Spent:
    """Of one key, in one month."""

    tokens: int = 0
    cost: float = 0.0
    month: str = field(default_factory=this_month)

    def turn_month(self) -> None:
        """A new month begins at nothing."""
        if (month := this_month()) != self.month:
            self.tokens, self.cost, self.month = 0, 0.0, month

    def add(self, tokens: int, cost: float) -> None:
        self.turn_month()
        self.tokens += tokens
        self.cost += cost


class Ledger:
    """Appends to the month's file in `folder`, which is made; without a folder, does nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.failures = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, entry: dict[str, Any]) -> None:
        """A full disk is logged and counted, and stops nobody's answer."""
        if self._folder is None:
            return
        line = msgspec.json.encode(entry) + b"\n"
        try:
            with self._path().open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            self.failures += 1
            logging.error("the ledger lost a line: %s", error.strerror)

    def sums(self, account: Callable[[str], Spent]) -> None:
        """Adds what this month's file holds to `account(key name)`. Broken lines are skipped, and said."""
        if self._folder is None:
            return
        lines: list[bytes] = []
        with suppress(FileNotFoundError):
            lines = self._path().read_bytes().splitlines()
        broken = 0
        for line in lines:
            try:
                entry = msgspec.json.decode(line)
                account(entry["key"]).add(entry["prompt_tokens"] + entry["completion_tokens"], entry["cost"])
            except (msgspec.DecodeError, KeyError, TypeError):
                broken += 1
        if broken:
            logging.warning("the ledger has %d lines that can't be read; they count as nothing", broken)

    def _path(self) -> Path:
        assert self._folder is not None
        return self._folder / f"usage-{this_month()}.jsonl"
