"""Rounds of streams: what each takes and gives, and how two kinds of them are compared in turn."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc

from bls.arrays import boolean, int32, strings
from bls.contract import PREPROCESSING, ROUTER
from scripts.bench import response_cost
from scripts.bench.local_server import Server
from scripts.bench.response_cost import Cost
from scripts.bench.stream_load import Stream, StreamRequest, output, run_streams, tensor
from scripts.host import processes
from scripts.host.progress import Progress

TOPICS = (
    "the sea", "an old clock", "a train in the snow", "the first day of school", "a lighthouse", "a garden at night",
    "a letter that came late", "the taste of bread",
)  # fmt: skip


@dataclass(frozen=True)
class Round:
    """What one round of streams gave, and what its processes took, as `response_cost.so_far` names them."""

    streams: list[Stream]
    costs: Mapping[str, Cost] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(sum(stream.tokens) for stream in self.streams)

    @property
    def responses(self) -> int:
        return sum(len(stream.arrivals) for stream in self.streams)

    @property
    def tokens_per_second(self) -> float:
        begin = min(stream.started for stream in self.streams)
        return self.tokens / (max(stream.arrivals[-1] for stream in self.streams) - begin)

    @property
    def first_token_ms(self) -> list[float]:
        return [stream.first_token_seconds * 1000 for stream in self.streams]

    @property
    def gaps_ms(self) -> list[float]:
        return [gap * 1000 for stream in self.streams for gap in stream.gaps_seconds]

    @property
    def cpu_us_per_token(self) -> float:
        """Of everything but the process that computes."""
        return sum(us for role, us in self.cpu_us.items() if role != processes.ENGINE_PROCESS) / self.tokens

    @property
    def cpu_us(self) -> dict[str, float]:
        """By the role of the processes."""
        us: dict[str, float] = defaultdict(float)
        for name, cost in self.costs.items():
            us[name.partition(",")[0]] += cost.user + cost.system
        return dict(us)


def prompts(count: int) -> list[str]:
    """Short prompts, each its own."""
    return [f"Write part {number + 1} of a long story about {TOPICS[number % len(TOPICS)]}." for number in range(count)]


def encode(url: str, text: str) -> np.ndarray[Any, Any]:
    """The ids that preprocessing gives for a prompt, shape [1,n]."""
    client = grpc.InferenceServerClient(url)
    inputs = [tensor("QUERY", strings(text)), tensor("REQUEST_OUTPUT_LEN", int32(1)), tensor("TIER", strings("small"))]
    ids: np.ndarray[Any, Any] = client.infer(PREPROCESSING, inputs).as_numpy("INPUT_ID")
    return ids


def router_request(text: str, tokens: int, model: str = ROUTER) -> StreamRequest:
    inputs = [
        tensor("text_input", strings(text)),
        tensor("max_tokens", int32(tokens)),
        tensor("min_tokens", int32(tokens)),
        tensor("stream", boolean(True)),
    ]
    outputs = [output("text_output"), output("num_output_tokens")]
    return StreamRequest(model, inputs, outputs, lambda result: int(result.as_numpy("num_output_tokens").flat[0]))


def served(server: Server, requests: Sequence[StreamRequest]) -> Round:
    before = response_cost.so_far(server.server_pid)
    streams = run_streams(server.grpc_url, requests)
    return Round(streams, response_cost.between(before, response_cost.so_far(server.server_pid)))


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(values, share)) if values else 0.0


def summary(rounds: Sequence[Round]) -> dict[str, float]:
    """Over all rounds of one kind: medians of rates, percentiles of all times."""
    first = [value for each in rounds for value in each.first_token_ms]
    gaps = [value for each in rounds for value in each.gaps_ms]
    responses = sum(each.responses for each in rounds)
    return {
        "tokens_per_second": statistics.median(each.tokens_per_second for each in rounds),
        "first_token_ms_p50": percentile(first, 50),
        "first_token_ms_p99": percentile(first, 99),
        "gap_ms_p50": percentile(gaps, 50),
        "gap_ms_p99": percentile(gaps, 99),
        "gap_ms_max": max(gaps, default=0.0),
        "tokens_per_response": sum(each.tokens for each in rounds) / responses,
        "cpu_us_per_token": statistics.median(each.cpu_us_per_token for each in rounds),
    }


def ratios(above: Sequence[Round], below: Sequence[Round]) -> dict[str, float]:
    """tokens/s of one kind over another, round by round."""
    each = [a.tokens_per_second / b.tokens_per_second for a, b in zip(above, below, strict=True)]
    return {"median": statistics.median(each), "min": min(each), "max": max(each)}


def alternate(
    kinds: dict[str, Callable[[], Round]], rounds: int, progress: Progress, label: str
) -> dict[str, list[Round]]:
    """One uncounted round of each kind, then `rounds` of each in turn."""
    results: dict[str, list[Round]] = {kind: [] for kind in kinds}
    progress.step(label)
    for number in range(rounds + 1):
        for kind, run in kinds.items():
            progress.status(f"round {number} of {rounds}: {kind}")
            measured = run()
            if number:
                results[kind].append(measured)
    progress.done(f"{rounds} rounds of {', '.join(kinds)}")
    return results


def table(title: str, found: dict[str, Any]) -> str:
    columns = {
        "tokens_per_second": "tokens/s",
        "first_token_ms_p50": "TTFT p50 ms",
        "first_token_ms_p99": "p99",
        "gap_ms_p50": "gap p50 ms",
        "gap_ms_p99": "p99",
        "gap_ms_max": "max",
        "tokens_per_response": "tokens/resp.",
        "cpu_us_per_token": "CPU us/token",
    }
    lines = [f"\n{title}", " " * 12 + "".join(f"{name:>13}" for name in columns.values())]
    for kind in ("engine", "router", "peer", "library", "engine_cold", "router_cold", "unfiltered", "filtered"):
        if kind in found:
            cells = [f"{found[kind][name]:13.1f}" for name in columns]
            if kind == "library":
                cells[-1] = f"{'-':>13}"
            lines.append(f"{kind:<12}" + "".join(cells))
    for name, ratio in found.items():
        if "_over_" in name:
            lines.append(f"{name.replace('_', ' ')}: {ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})")
    return "\n".join(lines)
