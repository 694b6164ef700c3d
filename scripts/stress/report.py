"""What a stress test found: times of requests, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Sample:
    """One request, in seconds after the start. `due_s`: when it was to be sent, from which its latency counts.

    So a client that is late, or waits for a server that is, hides nothing. `tokens` is None if the model doesn't tell.
    """

    kind: str
    due_s: float
    sent_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    tokens: int | None = None
    error: str = ""

    @property
    def latency_ms(self) -> float:
        return (self.ended_s - self.due_s) * 1000

    @property
    def first_ms(self) -> float:
        """Until the first piece with text or tokens; of an answer that is not streamed, until its end."""
        return ((self.arrivals_s[0] if self.arrivals_s else self.ended_s) - self.due_s) * 1000

    @property
    def gaps_ms(self) -> list[float]:
        return [(later - earlier) * 1000 for earlier, later in zip(self.arrivals_s, self.arrivals_s[1:], strict=False)]

    @property
    def token_ms(self) -> float:
        """Mean time per token after the first piece; 0 where there is none."""
        if len(self.arrivals_s) < 2 or not self.tokens or self.tokens < 2:
            return 0.0
        return (self.arrivals_s[-1] - self.arrivals_s[0]) * 1000 / (self.tokens - 1)


@dataclass(frozen=True)
class Objective:
    """What a request must keep to count as good; None is no demand. `gap_ms` is for the mean time per token."""

    ttft_ms: float | None = None
    gap_ms: float | None = None
    latency_ms: float | None = None

    def holds(self, sample: Sample) -> bool:
        limits = ((self.ttft_ms, sample.first_ms), (self.gap_ms, sample.token_ms), (self.latency_ms, sample.latency_ms))
        return not sample.error and all(limit is None or value <= limit for limit, value in limits)

    def __str__(self) -> str:
        limits = (("first token", self.ttft_ms), ("per token", self.gap_ms), ("whole answer", self.latency_ms))
        return ", ".join(f"{name} <= {limit:g} ms" for name, limit in limits if limit is not None) or "no error"


def report(samples: Sequence[Sample], objective: Objective, planned: int) -> dict[str, Any]:
    """All figures. Rates are over the time from the start to the last end. What was not sent counts as an error."""
    answered = [sample for sample in samples if not sample.error]
    seconds = max((sample.ended_s for sample in samples), default=0.0) or 1e-9
    good = sum(objective.holds(sample) for sample in samples)
    errors = Counter(sample.error for sample in samples if sample.error)
    return {
        "requests": planned,
        "answered": len(answered),
        "errors": dict(errors + Counter({"NOT_SENT": planned - len(samples)})),
        "seconds": round(seconds, 3),
        "requests_per_second": round(len(answered) / seconds, 3),
        "tokens_per_second": round(sum(sample.tokens or 0 for sample in answered) / seconds, 2),
        **_figures(answered),
        "objective": str(objective),
        "good": good,
        "goodput_per_second": round(good / seconds, 3),
        "by_kind": {
            kind: {"answered": len(group), **_figures(group)}
            for kind, group in _by(answered, lambda sample: sample.kind).items()
        },
    }


def _by(samples: Sequence[Sample], key: Callable[[Sample], str]) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return dict(sorted(groups.items()))


def _figures(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "latency_ms": percentiles([sample.latency_ms for sample in samples]),
        "first_token_ms": percentiles([sample.first_ms for sample in samples]),
        "response_gap_ms": percentiles([gap for sample in samples for gap in sample.gaps_ms]),
        "token_ms": percentiles([sample.token_ms for sample in samples if sample.token_ms]),
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, p50, p90, p99 and max; empty without values."""
    if not values:
        return {}
    marks = {f"p{share}": float(np.percentile(values, share)) for share in (50, 90, 99)}
    found = {"mean": float(np.mean(values)), **marks, "max": float(max(values))}
    return {name: round(value, 1) for name, value in found.items()}


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        f"{found['answered']} of {found['requests']} requests answered in {found['seconds']:.1f} s: "
        f"{found['requests_per_second']:.2f} requests/s, {found['tokens_per_second']:.1f} tokens/s",
        f"good ({found['objective']}): {found['good']}, {found['goodput_per_second']:.2f} requests/s",
        *(f"failed with {kind}: {count}" for kind, count in found["errors"].items()),
        f"{'ms':<28}" + "".join(f"{name:>10}" for name in ("mean", "p50", "p90", "p99", "max")),
    ]
    rows = {"latency": "latency_ms", "first token": "first_token_ms", "gap between responses": "response_gap_ms"}
    rows["time per token"] = "token_ms"
    lines += [_row(label, found[name]) for label, name in rows.items() if found[name]]
    if len(found["by_kind"]) > 1:
        for kind, group in found["by_kind"].items():
            lines.append(_row(f"latency, {kind} ({group['answered']})", group["latency_ms"]))
    return "\n".join(lines)


def _row(label: str, values: dict[str, float]) -> str:
    return f"{label:<28}" + "".join(f"{value:10.1f}" for value in values.values())
