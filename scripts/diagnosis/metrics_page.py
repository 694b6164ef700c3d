"""A page of metrics in Prometheus' text format, as tritonserver's port 8002 gives it.

Not by prometheus_client: it gives Triton's counters another name (with `_total`), takes 20 ms for a page that is read
here in 5, and doesn't say which line is wrong.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)",?\s*')
_ESCAPED = re.compile(r"\\(.)")

Key = tuple[str, frozenset[tuple[str, str]]]


class BadPage(ValueError):
    """The text is no page of metrics; the message names the line."""


@dataclass(frozen=True)
class Page:
    """The value of each series by its name and labels."""

    series: Mapping[Key, float] = field(default_factory=dict)

    def select(self, name: str, **labels: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of each series of that name that has these labels."""
        for (found, pairs), value in self.series.items():
            if found == name and labels.items() <= dict(pairs).items():
                yield dict(pairs), value

    def get(self, name: str, **labels: str) -> float | None:
        """The sum of those series, None where there is none."""
        values = [value for _, value in self.select(name, **labels)]
        return sum(values) if values else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Their sums by what `label` says; "" where a series doesn't have it."""
        sums: dict[str, float] = defaultdict(float)
        for found, value in self.select(name, **labels):
            sums[found.get(label, "")] += value
        return dict(sums)


def parse(text: str) -> Page:
    """Raises BadPage."""
    series: dict[Key, float] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        try:
            if found is None:
                raise ValueError
            series[found[1], frozenset(_labels(found[2] or ""))] = float(found[3])
        except ValueError:
            raise BadPage(f"line {number} is no metric: {line[:60]!r}") from None
    return Page(series)


def increase(before: Page, after: Page) -> Page:
    """How much each series of `after` has grown. A counter that fell began anew, and has what it shows."""
    grown = {}
    for key, value in after.series.items():
        old = before.series.get(key, 0.0)
        grown[key] = value - old if value >= old else value
    return Page(grown)


def quantile(cumulative: Mapping[str, float], share: float) -> float:
    """The value below which `share` (0 to 1) of a histogram's observations lie, from counts by upper bound `le`.

    Between bounds it goes evenly, as Prometheus does; beyond the last finite bound it is that bound.
    """
    bounds = sorted((float(bound), count) for bound, count in cumulative.items())
    wanted = share * (bounds[-1][1] if bounds else 0.0)
    lower = below = 0.0
    for bound, count in bounds:
        if count >= wanted and count > below:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        lower, below = bound, max(below, count)
    return lower


def _labels(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(text):
        found = _LABEL.match(text, place)
        if found is None:
            raise ValueError
        yield found[1], _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], found[2])
        place = found.end()
