"""The rounds of `bench gateway`: every way is asked in turn, and the medians over the rounds are kept."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.bench.gateway_load import Answers, ByGrpc, ByHttp, in_turn, load
from scripts.host import processes

ALONE, WHOLE, STREAMED = 300, 1500, 96  # requests of a round: one at a time, at once, as streams of WORDS
WORDS = 200
STREAMS = 32
ENGINE_WORDS = 64
LITELLMS_SHARE = 10  # it is asked so much less, as it takes so much longer


@dataclass(frozen=True)
class Hop:
    """A process that requests go through."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        return sum(processes.cpu_seconds(self.pid).values())


class Medians:
    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def found(self) -> dict[str, Any]:
        return {name: round(statistics.median(values), 2) for name, values in self._values.items()}


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def milliseconds(answers: Answers) -> dict[str, float]:
    return {name: percentile(answers.seconds, share) * 1000 for name, share in (("p50", 0.5), ("p99", 0.99))}


async def stand_in_rounds(target: str, hops: Mapping[str, Hop], rounds: int) -> dict[str, Any]:
    """`hops` are "gateway" and perhaps "litellm", whose provider is the gateway."""
    ways: dict[str, ByGrpc | ByHttp] = {"grpc": ByGrpc(target)} | {name: ByHttp(hop.port) for name, hop in hops.items()}
    found = Medians()
    for way in ways.values():
        await load(way.one, 30, 4, 2, False)
    for _ in range(rounds):
        await _alone(ways, found)
        await _at_once(ways, found)
        for name, hop in hops.items():
            await _per_core(name, hop, ways[name], found)
    for way in ways.values():
        await way.close()
    return found.found()


async def _alone(ways: Mapping[str, ByGrpc | ByHttp], found: Medians) -> None:
    """One request at a time, by each way in turn. What is added is to the way that the hop itself takes."""
    answers = await in_turn({name: way.one for name, way in ways.items()}, ALONE, 2, False)
    before = "grpc"
    for name, each in answers.items():
        for share, value in milliseconds(each).items():
            if name != "grpc":
                found.note(f"{name}_added_{share}_ms_at_1", value - milliseconds(answers[before])[share])
            else:
                found.note(f"grpc_{share}_ms_at_1", value)
        before = name


async def _at_once(ways: Mapping[str, ByGrpc | ByHttp], found: Medians) -> None:
    by_grpc = milliseconds(await load(ways["grpc"].one, WHOLE, STREAMS, 2, False))
    by_http = milliseconds(await load(ways["gateway"].one, WHOLE, STREAMS, 2, False))
    for share, value in by_grpc.items():
        found.note(f"gateway_added_{share}_ms_at_{STREAMS}", by_http[share] - value)


async def _per_core(name: str, hop: Hop, way: ByGrpc | ByHttp, found: Medians) -> None:
    share = LITELLMS_SHARE if name == "litellm" else 1
    before = hop.cpu_s()
    whole = await load(way.one, WHOLE // share, 16, 2, False)
    between = hop.cpu_s()
    streamed = await load(way.one, max(STREAMED // share, 8), STREAMS, WORDS, True)
    found.note(f"{name}_requests_a_core", len(whole.seconds) / (between - before))
    found.note(f"{name}_events_a_core", streamed.events / (hop.cpu_s() - between))


async def engine_rounds(port: int, target: str, rounds: int) -> dict[str, Any]:
    direct, through = ByGrpc(target, fills=True), ByHttp(port, fills=True)
    ratios, rates = [], []
    await load(direct.one, STREAMS, STREAMS, 8, True)
    for number in range(rounds):
        found = {}
        for way in (direct, through) if number % 2 else (through, direct):
            found[way] = await load(way.one, STREAMS, STREAMS, ENGINE_WORDS, True)
        rates.append(found[direct].tokens / found[direct].total_s)
        ratios.append(found[direct].total_s / found[through].total_s)  # the same tokens: each answer has all of its own
    await direct.close()
    await through.close()
    return {
        "engine_tokens_per_second": round(statistics.median(rates), 1),
        "gateway_of_grpc": round(statistics.median(ratios), 3),
        "gateway_of_grpc_range": [round(min(ratios), 3), round(max(ratios), 3)],
    }
