"""Tokenizer and detokenizer by number of instances and by queue delay, for short and long texts, on the real server.

    python -m scripts.bench instances [--clients 16] [--seconds 3] [--instances 1,2,4] [--delays 0,100,500,2000]

Each client sends one request after the other, all from one process on the same machine, which needs a core too. Delays
are max_queue_delay_microseconds. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_aio

from bls.arrays import int32, strings
from bls.contract import POSTPROCESSING, PREPROCESSING
from bls.paths import ROOT
from scripts.bench.local_server import Server, running_server
from scripts.bench.rounds import encode, percentile
from scripts.bench.stream_load import tensor
from scripts.host.progress import Progress

SHORT = "What is the capital of France, and how many people live there?"
LONG = "The harbour of the old town is small, and in winter only a few boats come in before it is dark. " * 24
WARM_UP_S = 0.3
PATIENCE_S = 60


def repository(folder: Path) -> Path:
    """The two models as they are, and the engines' tokenizers where they look for them."""
    for model in (PREPROCESSING, POSTPROCESSING):
        shutil.copytree(ROOT / "model_repository" / model, folder / "model_repository" / model)
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    return folder / "model_repository"


def configure(server: Server, model: str, instances: int, delay_us: int) -> None:
    """Loads the model anew, once its old processes are gone."""
    config = server.control.config(model, 30)
    config["instance_group"] = [{"count": instances, "kind": "KIND_CPU"}]
    config["dynamic_batching"]["max_queue_delay_microseconds"] = delay_us
    control = server.control
    control.unload(model, PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while control.states()[model] != ["UNAVAILABLE"] and time.monotonic() < end:
        time.sleep(0.05)
    control.load(model, PATIENCE_S, config)


def requests(url: str) -> dict[str, dict[str, list[Any]]]:
    """Inputs by model and kind of text; the detokenizer gets the ids of the same texts."""
    found: dict[str, dict[str, list[Any]]] = {PREPROCESSING: {}, POSTPROCESSING: {}}
    for kind, text in (("short", SHORT), ("long", LONG)):
        found[PREPROCESSING][kind] = [tensor("QUERY", strings(text)), tensor("REQUEST_OUTPUT_LEN", int32(16))]
        ids = encode(url, text)
        found[POSTPROCESSING][kind] = [
            tensor("TOKENS_BATCH", ids[:, None, :].astype(np.int32)),
            tensor("SEQUENCE_LENGTH", int32(ids.shape[1])),
        ]
    return found


async def load(url: str, model: str, inputs: list[Any], clients: int, seconds: float) -> dict[str, float]:
    """Requests per second and milliseconds of `clients` that each send one after the other."""
    times_ms: list[float] = []
    async with grpc_aio.InferenceServerClient(url) as client:
        begin = time.perf_counter() + WARM_UP_S

        async def one() -> None:
            while (sent := time.perf_counter()) < begin + seconds:
                await client.infer(model, inputs)
                if sent >= begin:
                    times_ms.append((time.perf_counter() - sent) * 1000)

        await asyncio.gather(*(one() for _ in range(clients)))
        elapsed = time.perf_counter() - begin
    return {
        "requests_per_second": round(len(times_ms) / elapsed, 1),
        "p50_ms": round(percentile(times_ms, 50), 2),
        "p99_ms": round(percentile(times_ms, 99), 2),
        "max_ms": round(max(times_ms, default=0.0), 2),
    }


def measure(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    inputs = requests(server.grpc_url)
    cells = [(model, count, delay) for model in inputs for count in options.instances for delay in options.delays]
    found = []
    progress = Progress()
    progress.step("instances", f"{len(cells)} configurations")
    for number, (model, count, delay) in enumerate(cells, 1):
        progress.status(f"{number} of {len(cells)}: {model}, {count} instances, {delay} us")
        configure(server, model, count, delay)
        for kind, given in inputs[model].items():
            measured = asyncio.run(load(server.grpc_url, model, given, options.clients, options.seconds))
            found.append({"model": model, "text": kind, "instances": count, "delay_us": delay, **measured})
    progress.done()
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    lines = []
    for model, kind in dict.fromkeys((cell["model"], cell["text"]) for cell in found):
        lines += [
            f"\n{model}, {kind} text",
            f"{'instances':>10}{'delay us':>10}{'req/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}",
        ]
        for cell in found:
            if (cell["model"], cell["text"]) == (model, kind):
                lines.append(
                    f"{cell['instances']:>10}{cell['delay_us']:>10}{cell['requests_per_second']:>10.0f}"
                    f"{cell['p50_ms']:>10.2f}{cell['p99_ms']:>10.2f}{cell['max_ms']:>10.1f}"
                )
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench instances", description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3, help="duration of each measurement")
    parser.add_argument("--instances", type=numbers, default=[1, 2, 4], help="separated by commas")
    parser.add_argument("--delays", type=numbers, default=[0, 100, 500, 2000], help="microseconds, separated by commas")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    (ROOT / "logs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "logs") as name:  # There: the engines' files are linked.
        folder = Path(name)
        with running_server(folder, repository(folder)) as server:
            found = measure(server, options)
    print(table(found))
    text = json.dumps({"clients": options.clients, "seconds": options.seconds, "results": found})
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0
