"""The text classifier without and with Triton's dynamic batching, in alternating rounds on one server.

    python -m scripts.bench classifier [--lengths 8,24,64,128,0] [--clients 1,16,64] [--kinds plain,batched]

plain     no batching, 1 instance with as many threads as there are cores
plain1    the same with 1 thread
batched   as model_repository has it: dynamic batching, 2 instances of 1 thread each
fp32      batched, with the weights of all multiplications in float32
int8      batched, with these as eight-bit integers instead of four (dynamic quantisation)
pipeline  batched, from raw text: text_pipeline_ensemble, texts of the same lengths

"alone" is ONNX Runtime without Triton, on one thread: texts per second of CPU by batch size and kind of weights.
"CPU ms" is what the server and its models spent on a request, which a busy machine changes less than the rates.
Lengths are tokens of a text, all included; 0 is a mix of all lengths from 8 to 128, short ones most. Each client sends
its next request when the last is answered. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bls.arrays import strings
from bls.contract import TEXT_CLASSIFIER, TEXT_PIPELINE
from engines.classifier import manifest as text_manifest
from engines.classifier.manifest import CLASSIFIER
from engines.classifier.session import open_session
from scripts.bench import request_load
from scripts.bench.classifier_models import accuracies, make_repository
from scripts.bench.local_server import Server, running_server
from scripts.bench.request_load import Load
from scripts.host import processes
from scripts.host.progress import Progress

KINDS = ("plain", "plain1", "batched", "fp32", "int8", "pipeline")
WEIGHTS = {"int4": CLASSIFIER, "fp32": "fp32", "int8": "int8"}
MIXED = 0
ALONE_BATCHES = (1, 8, 32)
ALONE_S = 0.5  # of CPU
MIXED_LENGTHS = (8, 8, 8, 12, 12, 16, 16, 24, 24, 32, 48, 64, 96, 128)


def alone(folder: Path, length: int) -> dict[str, float]:
    """Texts of so many tokens that one thread computes in a second of CPU, by batch size."""
    session = open_session(str(text_manifest.load(folder).model_path), threads=1)
    found = {}
    for size in ALONE_BATCHES:
        feeds = {
            "input_ids": np.full((size, length), 2000, np.int64),
            "attention_mask": np.ones((size, length), np.int64),
        }
        session.run(["logits"], feeds)
        begin, texts = time.thread_time(), 0
        while time.thread_time() < begin + ALONE_S:
            session.run(["logits"], feeds)
            texts += size
        found[str(size)] = texts / (time.thread_time() - begin)
    return found


@dataclass(frozen=True)
class Round:
    """`batch` is how many requests an execution of the model had, `cpu_ms` what the whole server spent on a request."""

    load: Load
    batch: float
    cpu_ms: float


class Kind:
    """One way to serve, and the requests that ask it."""

    def __init__(self, server: Server, kind: str, length: int, seed: int) -> None:
        self.model = {"batched": TEXT_CLASSIFIER, "pipeline": TEXT_PIPELINE}.get(kind, kind)
        self._server = server
        self.host = server.http_url.removeprefix("http://")
        chance = np.random.default_rng(seed)
        lengths = MIXED_LENGTHS if length == MIXED else (length,)
        self.requests = [self._request(kind, int(chance.choice(lengths)), chance) for _ in range(256)]

    def _request(self, kind: str, length: int, chance: np.random.Generator) -> bytes:
        if kind == "pipeline":  # words of one token each
            words = chance.choice(("time", "house", "water", "music", "people", "street", "green", "under"), length - 5)
            tensors = {"text": strings(" ".join(words))}
            return request_load.request_bytes(self.host, self.model, tensors, ["labels", "scores", "embedding"])
        ids = chance.integers(2000, 20000, length).reshape(1, length)
        tensors = {"input_ids": ids.astype(np.int64), "attention_mask": np.ones((1, length), np.int64)}
        return request_load.request_bytes(self.host, self.model, tensors, ["logits", "embedding"])

    def run(self, clients: int, seconds: float) -> Round:
        before, cpu = self._counts(), self._cpu_seconds()
        load = request_load.run(self.host, self.requests, clients, warm_up_s=seconds / 3, measured_s=seconds)
        spent = self._cpu_seconds() - cpu
        requests, executions = (after - b for after, b in zip(self._counts(), before, strict=True))
        return Round(load, requests / max(executions, 1), spent * 1000 / max(requests, 1))

    def _cpu_seconds(self) -> float:
        return sum(processes.cpu_seconds(self._server.server_pid).values())

    def _counts(self) -> tuple[int, int]:
        model = TEXT_CLASSIFIER if self.model == TEXT_PIPELINE else self.model
        with urllib.request.urlopen(f"{self._server.http_url}/v2/models/{model}/stats") as response:
            (stats,) = json.load(response)["model_stats"]
        return int(stats.get("inference_count", 0)), int(stats.get("execution_count", 0))


def compare(
    server: Server, kinds: Sequence[str], length: int, clients: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Each kind in turn, `rounds` times."""
    asked = {kind: Kind(server, kind, length, seed=length) for kind in kinds}
    rounds: dict[str, list[Round]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            rounds[kind].append(asked[kind].run(clients, options.seconds))
    return {kind: _summary(rounds[kind]) for kind in kinds} | _gains(rounds)


def _summary(rounds: Sequence[Round]) -> dict[str, float]:
    """Medians over the rounds."""
    return {
        "per_second": statistics.median(each.load.per_second for each in rounds),
        "p50_ms": statistics.median(each.load.latency_ms(50) for each in rounds),
        "p99_ms": statistics.median(each.load.latency_ms(99) for each in rounds),
        "batch": statistics.median(each.batch for each in rounds),
        "cpu_ms": statistics.median(each.cpu_ms for each in rounds),
    }


def _gains(rounds: dict[str, list[Round]]) -> dict[str, Any]:
    """Requests/s over the baseline's, round by round."""
    base = [each.load.per_second for each in rounds.get("plain", [])]
    found: dict[str, Any] = {}
    for kind in rounds if base else ():
        gains = [each.load.per_second / below for each, below in zip(rounds[kind], base, strict=True)]
        if kind != "plain":
            found[f"{kind}_over_plain"] = {"median": statistics.median(gains), "min": min(gains), "max": max(gains)}
    return found


def table(title: str, found: dict[str, Any], kinds: Sequence[str]) -> str:
    columns = {"per_second": "requests/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "batch": "batch", "cpu_ms": "CPU ms"}
    head = "".join(f"{name:>11}" for name in columns.values())
    lines = [f"\n{title}", f"{'':<10}{head}   over plain (min to max)"]
    for kind in kinds:
        cells = "".join(f"{found[kind][column]:11.1f}" for column in columns)
        gain = found.get(f"{kind}_over_plain")
        shown = f"   {gain['median']:.2f} ({gain['min']:.2f} to {gain['max']:.2f})" if gain else ""
        lines.append(f"{kind:<10}{cells}{shown}")
    return "\n".join(lines)


def alone_text(found: dict[str, dict[str, dict[str, float]]]) -> str:
    sizes = " / ".join(map(str, ALONE_BATCHES))
    kinds = []
    for kind, by_length in found.items():
        rates = [
            f"{' / '.join(f'{rate:.0f}' for rate in by_size.values())} of {n} tokens"
            for n, by_size in by_length.items()
        ]
        kinds.append(f"{kind}: {', '.join(rates)}")
    return f"texts per second of CPU in batches of {sizes}: {'; '.join(kinds)}"


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench classifier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--lengths",
        type=numbers,
        default=[8, 24, 64, 128, MIXED],
        help="lengths in tokens, separated by commas; 0: mixed",
    )
    parser.add_argument(
        "--clients", type=numbers, default=[1, 16, 64], help="how many clients at once, separated by commas"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each round measures each kind")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    cores = len(os.sched_getaffinity(0))
    result: dict[str, Any] = {"cores": cores, "rounds": options.rounds, "seconds": options.seconds}
    progress = Progress()
    with tempfile.TemporaryDirectory() as folder:
        progress.step("models", "in four bits, fp32 and int8")
        repository = make_repository(Path(folder), cores)
        result["int8"] = accuracies(Path(folder) / "engines" / "built")
        progress.done(", ".join(f"{name} {value:.4f}" for name, value in result["int8"].items()))
        progress.step("alone")
        lengths = [length for length in options.lengths if length != MIXED]
        built = Path(folder) / "engines" / "built"
        result["alone"] = {
            kind: {str(length): alone(built / name, length) for length in lengths} for kind, name in WEIGHTS.items()
        }
        progress.done(alone_text(result["alone"]))
        with running_server(Path(folder), repository) as server:
            for length in options.lengths:
                for clients in options.clients:
                    name = "mixed lengths" if length == MIXED else f"{length} tokens"
                    progress.step(f"{name}, {clients} clients", ", ".join(kinds))
                    found = compare(server, kinds, length, clients, options)
                    progress.done()
                    print(table(f"{name}, {clients} clients", found, kinds), flush=True)
                    result[f"tokens_{length or 'mixed'}_clients_{clients}"] = found
            sizes = processes.memory_bytes(server.server_pid)
            result["pss_mb"] = {name: [round(size / 1e6, 1) for size in each] for name, each in sizes.items()}
            print("\nmemory (PSS), MB:", result["pss_mb"])
    text = json.dumps(result)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0
