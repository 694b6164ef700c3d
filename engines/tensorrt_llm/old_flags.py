"""What became of the flags that TensorRT-LLM no longer takes, from old_flags.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from engines.toml_file import tomllib

FILE = Path(__file__).with_name("old_flags.toml")
TARGETS = ("build", "convert", "quantize")
RULES = ("", "sum", "ranks")  # see old_commands.py


@dataclass(frozen=True)
class Successor:
    """A flag of today. Its value is `value`, else the old one (by `values` if it is there), else `default`."""

    to: str
    flag: str
    value: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    rule: str = ""

    def value_of(self, given: str | None) -> str | None:
        if self.value is not None:
            return self.value
        return self.default if given is None else self.values.get(given, given)


@dataclass(frozen=True)
class OldFlag:
    """`gone` is the version that no longer takes the flag, in words; `why` says what became of it; for `over` see the
    file."""

    gone: str
    why: str
    becomes: tuple[Successor, ...]
    over: tuple[str, ...]


@cache
def known() -> Mapping[str, OldFlag]:
    """By the flag's name without dashes."""
    tables: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {name: _old_flag(table) for name, table in tables.items()}


def _old_flag(table: Mapping[str, Any]) -> OldFlag:
    becomes = tuple(Successor(**entry) for entry in table.get("becomes", ()))
    return OldFlag(table["gone"], table["why"], becomes, tuple(table.get("over", ())))
