"""The gateway's own counters, as Prometheus reads them, beside Triton's page."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTERS = {
    "llm_gateway_requests_total": "Requests that ended, by path and status; 499 is a client that left",
    "llm_gateway_prompt_tokens_total": "Prompt tokens, by key",
    "llm_gateway_completion_tokens_total": "Answered tokens, by key",
    "llm_gateway_cost_total": "What they cost by the policy's prices, by key",
    "llm_gateway_refused_total": "Requests refused by the gateway itself, by why",
    "llm_gateway_broken_streams_total": "Streams that ended with an error after they had begun",
    "llm_gateway_slow_readers_total": "Clients that were cut because they took nothing",
    "llm_gateway_parked_total": "Requests that waited for a server that was away",
    "llm_gateway_ledger_failures_total": "Lines that the ledger lost",
}
_GAUGES = {
    "llm_gateway_in_flight": "Requests being answered",
    "llm_gateway_streams": "Streams being sent",
    "llm_gateway_parked": "Requests that wait for a server that is away",
    "llm_gateway_draining": "Processes of the gateway that are about to end",
}
_ALL = {*_COUNTERS, *_GAUGES}
_FIRST = "llm_gateway_time_to_first_token_seconds"


class Metrics:
    """Counters by name and labels; gauges are set when the page is written.

    `before`: the snapshot of a worker that ended, whose counters this one goes on with.
    """

    def __init__(self, before: bytes = b"") -> None:
        self._values: defaultdict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0
        for name in _COUNTERS:
            if "by " not in _COUNTERS[name]:
                self.add(name, 0)
        if before:
            self._add_all(before, _COUNTERS.keys())

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        values, key = self._values[name], tuple(labels.items())
        values[key] = values.get(key, 0) + amount

    def set(self, name: str, value: float) -> None:
        self._values[name] = {(): value}

    def value(self, name: str) -> float:
        """Of a gauge."""
        return self._values[name].get((), 0.0)

    def first_token(self, seconds: float) -> None:
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def snapshot(self) -> bytes:
        """All of it, for `before` or `with_others`."""
        values = [(name, list(labels), value) for name, of in self._values.items() for labels, value in of.items()]
        return msgspec.msgpack.encode((values, self._buckets, self._seconds))

    def with_others(self, snapshots: Sequence[bytes]) -> Metrics:
        """The sums over this one and those of the others."""
        if not snapshots:
            return self
        found = Metrics(self.snapshot())
        for snapshot, names in ((self.snapshot(), _GAUGES.keys()), *((each, _ALL) for each in snapshots)):
            found._add_all(snapshot, names)
        return found

    def _add_all(self, snapshot: bytes, names: AbstractSet[str]) -> None:
        values, buckets, seconds = msgspec.msgpack.decode(snapshot)
        for name, labels, value in values:
            if name in names:
                self.add(name, value, **dict(labels))
        if names & _COUNTERS.keys():
            self._buckets = [one + other for one, other in zip(self._buckets, buckets, strict=True)]
            self._seconds += seconds

    def page(self) -> bytes:
        """In Prometheus's text format."""
        lines: list[str] = []
        for names, kind in ((_COUNTERS, "counter"), (_GAUGES, "gauge")):
            for name, purpose in names.items():
                lines += [f"# HELP {name} {purpose}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{_shown(labels)} {value:.10g}" for labels, value in self._values[name].items()]
        lines += [f"# HELP {_FIRST} Seconds from a request's arrival to its first piece", f"# TYPE {_FIRST} histogram"]
        count = 0
        for bound, number in zip((*_BOUNDS, "+Inf"), self._buckets, strict=True):
            count += number
            lines.append(f'{_FIRST}_bucket{{le="{bound}"}} {count}')
        lines += [f"{_FIRST}_sum {self._seconds:.6f}", f"{_FIRST}_count {count}", ""]
        return "\n".join(lines).encode()


def _shown(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    escaped = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{','.join(escaped)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
