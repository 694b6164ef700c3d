"""What the engine servers say of themselves on their metrics pages, and the tier's own figures out of all of them.

A tier's are sums, under the names of TensorRT-LLM's metrics that engines here have (engines/triton/metrics.py). What
only grows on each server only grows here too, whoever leaves, comes back or is started anew.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engines.remote.names import DRAINING
from engines.triton.metrics import FAMILIES

PAGE_BYTES = 8 << 20
READ_SECONDS = 1.5
Values = Mapping[tuple[str, str], float]  # by family and kind, as engines/triton/metrics.py has them

_SERIES = re.compile(r"nv_trt_llm_(\w+)_metrics\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
COUNTS = frozenset({("kv_cache_block", "reused"), ("kv_cache_block", "missed"), ("general", "iteration_counter")})
_LARGEST = {("kv_cache_block", "tokens_per"), ("inflight_batcher", "micro_batch_id")}
_USED, _MOST, _SHARE = (("kv_cache_block", kind) for kind in ("used", "max", "fraction"))


@dataclass(frozen=True)
class Figures:
    """One server's, of one engine model."""

    values: Values = field(default_factory=dict)
    is_draining: bool = False

    @property
    def waiting(self) -> float:
        return self.values.get(("request", "waiting"), 0.0)

    @property
    def block_tokens(self) -> int:
        """0 where it doesn't say."""
        return int(self.values.get(("kv_cache_block", "tokens_per"), 0))


def parse(page: str, model: str) -> Figures:
    """Of a page in Prometheus' text format; what is no figure of an engine is skipped."""
    values: dict[tuple[str, str], float] = {}
    is_draining = False
    for line in page.splitlines():
        if line.startswith(DRAINING):
            is_draining = line.endswith(" 1")
        found = _SERIES.fullmatch(line)
        if not found or found[1] not in FAMILIES:
            continue
        labels = dict(_LABEL.findall(found[2]))
        kind = labels.get(FAMILIES[found[1]][0])
        if labels.get("model") == model and kind is not None:
            values[found[1], kind] = float(found[3])
    return Figures(values, is_draining)


def total(each: Iterable[Values]) -> dict[tuple[str, str], float]:
    """Of all servers of a tier: sums, but for sizes, times and shares; without COUNTS, which need a Tally."""
    found: dict[tuple[str, str], float] = {}
    for values in each:
        for name, value in values.items():
            if name in COUNTS:
                continue
            is_largest = name in _LARGEST or name[0] == "general"
            before = found.get(name, 0.0)
            found[name] = max(before, value) if is_largest else before + value
    if _SHARE in found:
        found[_SHARE] = found.get(_USED, 0.0) / found[_MOST] if found.get(_MOST) else 0.0
    return found


class Tally:
    """COUNTS of a tier since its servers were first looked at, so that one that comes with a past adds nothing."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], float] = {}
        self._last: dict[str, dict[tuple[str, str], float]] = {}  # by server

    def look(self, servers: Mapping[str, Values]) -> dict[tuple[str, str], float]:
        """The sums, with what `servers` have counted since the last look.

        A server that is not among them is forgotten. One whose count has fallen was started anew.
        """
        self._last = {server: self._last.get(server, {}) for server in servers}
        for server, values in servers.items():
            last = self._last[server]
            for name in COUNTS & values.keys():
                value = values[name]
                grown = value - last.get(name, value)
                self._sums[name] = self._sums.get(name, 0.0) + (grown if grown >= 0 else value)
                last[name] = value
        return dict(self._sums)


async def read(host: str, port: int, model: str) -> Figures | None:
    """What the page at host:port says; None where there is none."""
    try:
        return parse(await asyncio.wait_for(_page(host, port), READ_SECONDS), model)
    except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        return None


async def _page(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port, limit=PAGE_BYTES)
    try:
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if head.split(None, 2)[1] != "200":
            raise ValueError(head)
        length = re.search(r"(?im)^content-length: (\d+)", head)
        body = await reader.readexactly(min(int(length[1]), PAGE_BYTES)) if length else await reader.read(PAGE_BYTES)
        return body.decode(errors="replace")
    finally:
        writer.close()
