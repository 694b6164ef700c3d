"""The time that a policy decides by: a fact like others, in the zone that it names, and never read from the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

UTC = "UTC"
NOON = datetime(2026, 1, 5, 12)  # A Monday: what an example is asked at that names no time.

_CLOCKS = {
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("time", "time"),
    ("time", "localtime"), ("time", "gmtime"), ("time", "strftime"), ("time", "monotonic"), ("time", "ctime"),
}  # fmt: skip
HINT = 'it may hold at noon and not at night: ask state.now, which examples set by now="2026-01-05 22:30"'


def zone(name: str) -> tzinfo:
    """Raises ValueError for a zone that this machine doesn't know."""
    if name == UTC:
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        known = 'such as "Europe/Zurich"; where none is known, the package tzdata is missing'
        raise ValueError(f"{name!r} is no time zone that is known here, {known}") from None


def at(now: datetime, of: tzinfo) -> datetime:
    """The same time in this zone; one without a zone is meant to be in it."""
    return now.astimezone(of) if now.tzinfo else now.replace(tzinfo=of)


def read(text: str | datetime) -> datetime:
    """As an example names it: "2026-01-05 22:30", or "22:30" on that Monday. Raises ValueError."""
    if isinstance(text, datetime):
        return text
    if len(text) <= len("22:30:00"):
        text = f"{NOON.date()} {text}"
    return datetime.fromisoformat(text)


def machine_clocks(source: bytes | str) -> list[tuple[int, str]]:
    """The line of each place at which a policy reads the machine's clock, and why that won't do."""
    return sorted(set(_found(ast.parse(source))))


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if (name, node.attr) in _CLOCKS:
                yield node.lineno, f"{name}.{node.attr} reads the machine's clock, so {HINT}"
