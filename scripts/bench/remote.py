"""Tiers on machines of their own against all on one: what the hop adds, and what becomes of tokens a second.

    python -m scripts.bench remote [--rounds 5] [--streams 8] [--tokens 64] [--json FILE]

First an engine that only sleeps, asked directly and through another server's tensorrt_llm_small, in turn: what the hop
adds to a request of one token, one at a time, and to the CPU time of a response, in the forwarding server. Then the
real engine, asked through the router of its own server (T0), and through a router whose small tier is on another server
(T1), in turn. All of it is on this machine: a network adds its own. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_aio

from bls.contract import ENGINE_CONTROL, LARGE, POSTPROCESSING, PREPROCESSING, ROUTER, SMALL
from bls.paths import ROOT
from scripts.bench.local_server import Server, running_server
from scripts.bench.rounds import Round, alternate, prompts, ratios, router_request, served, summary
from scripts.bench.router import engine_request
from scripts.bench.stream_load import StreamRequest
from scripts.host import processes
from scripts.host.progress import Progress

ALONE = 400  # requests of one token
MS_PER_TOKEN = 2  # of the engine that sleeps: a response for each 50 tokens, every 100 ms
SLEEPING_STREAMS, SLEEPING_TOKENS = 64, 2000
SERVED = (ENGINE_CONTROL, POSTPROCESSING, PREPROCESSING, ROUTER, SMALL)
WITHOUT_LARGE = f"--skip-model={LARGE}"  # whose folder the policy needs


def copied(folder: Path, models: Sequence[str] = (*SERVED, LARGE)) -> Path:
    """A model repository with these models, beside links to what they need."""
    for model in models:
        shutil.copytree(ROOT / "model_repository" / model, folder / "model_repository" / model)
    for name in ("engines", "words"):
        (folder / name).symlink_to(ROOT / name)
    return folder / "model_repository"


def sleeping(folder: Path, engine: str, **given: float) -> Path:
    """The same with nothing but a small engine that sleeps: a file of scripts/bench, with these parameters."""
    repository = copied(folder, (ENGINE_CONTROL, SMALL))
    shutil.copy(ROOT / "scripts" / "bench" / engine, repository / SMALL / "1" / "model.py")
    config = repository / SMALL / "configs" / "cpu.pbtxt"
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in given.items()]
    config.write_text(re.sub(r"^parameters .*$", "", config.read_text(), flags=re.MULTILINE) + "".join(lines))
    return repository


def remote_flags(repository: Path, *engines: Server) -> list[str]:
    """What a router's server needs for a small tier on `engines`, whose metrics pages are at a port of their own. Each
    has its full share from the beginning."""
    config = repository / SMALL / "configs" / "remote.pbtxt"
    text = config.read_text()
    port = engines[0].metrics_url.rpartition(":")[2].partition("/")[0]
    for key, value in {"metrics_port": port, "slow_start_seconds": "0"}.items():
        text = re.sub(rf'(key: "{key}" value {{ string_value: ")[^"]*', rf"\g<1>{value}", text)
    config.write_text(text)
    return [f"--remote=small={','.join(each.grpc_url for each in engines)}"]


async def _times(url: str, request: StreamRequest, count: int) -> list[float]:
    """Milliseconds until each answer has ended, one request after the other."""
    found = []
    async with grpc_aio.InferenceServerClient(url) as client:
        for _ in range(count):

            async def once() -> Any:
                yield {"model_name": request.model, "inputs": request.inputs, "outputs": request.outputs}

            began = time.perf_counter()
            async for _result, error in client.stream_infer(once()):
                if error is not None:
                    raise RuntimeError(str(error))
            found.append(1000 * (time.perf_counter() - began))
    return found


def hop(folder: Path, rounds: int, progress: Progress) -> dict[str, Any]:
    """What forwarding adds to a request and costs a response, before an engine that sleeps."""
    (folder / "engine").mkdir()
    (folder / "router").mkdir()
    with ExitStack() as stack:
        paced = sleeping(folder / "engine", "paced_engine.py", ms_per_token=MS_PER_TOKEN, streams=SLEEPING_STREAMS)
        engine = stack.enter_context(running_server(folder / "engine", paced, "--tier=small"))
        models = copied(folder / "router", (ENGINE_CONTROL, SMALL))
        flags = remote_flags(models, engine)
        router = stack.enter_context(running_server(folder / "router", models, *flags))
        one = engine_request(np.array([[1, 2, 3]], np.int32), 1)
        times: dict[str, list[float]] = {"direct": [], "forwarded": []}
        for _ in range(rounds):
            for name, server in (("direct", engine), ("forwarded", router)):
                times[name] += asyncio.run(_times(server.grpc_url, one, ALONE // rounds))
        many = [engine_request(np.array([[1, 2, 3]], np.int32), SLEEPING_TOKENS)] * SLEEPING_STREAMS
        results = alternate(
            {"direct": lambda: served(engine, many), "forwarded": lambda: served(router, many)}, rounds, progress, "hop"
        )
        memory = processes.memory_bytes(router.server_pid)
    return {
        **{f"{name}_ms_p50": statistics.median(found) for name, found in times.items()},
        "added_ms_p50": statistics.median(times["forwarded"]) - statistics.median(times["direct"]),
        "added_ms_p99": float(np.percentile(times["forwarded"], 99) - np.percentile(times["direct"], 99)),
        "cpu_us_per_response": statistics.median(_cpu_us(each) for each in results["forwarded"]),
        "cpu_us_per_response_by_process": {
            name: round(statistics.median(_cpu_us(each, name) for each in results["forwarded"]), 1)
            for name in results["forwarded"][0].cpu_us
        },
        "responses_per_second": statistics.median(each.responses / _seconds(each) for each in results["forwarded"]),
        "remote_tier_mb": round(max(memory.get(SMALL, [0])) / 1e6, 1),
    }


def _seconds(each: Round) -> float:
    return max(stream.arrivals[-1] for stream in each.streams) - min(stream.started for stream in each.streams)


def _cpu_us(each: Round, process: str = "") -> float:
    """Of the server that forwards, or one of its processes by name."""
    spent = each.cpu_us.get(process, 0.0) if process else sum(each.cpu_us.values())
    return spent / each.responses


def topologies(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Tokens a second and the first token, of all on one server and of a router before an engine server."""
    for name in ("t0", "engine", "t1"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        t0 = stack.enter_context(running_server(folder / "t0", copied(folder / "t0"), WITHOUT_LARGE))
        engine = stack.enter_context(
            running_server(folder / "engine", copied(folder / "engine", (ENGINE_CONTROL, SMALL)), "--tier=small")
        )
        models = copied(folder / "t1")
        flags = (*remote_flags(models, engine), WITHOUT_LARGE)
        t1 = stack.enter_context(running_server(folder / "t1", models, *flags))
        requests = [router_request(text, options.tokens) for text in prompts(options.streams)]
        kinds = {"t0": lambda: served(t0, requests), "t1": lambda: served(t1, requests)}
        results = alternate(kinds, options.rounds, progress, f"{options.streams} streams")
    found: dict[str, Any] = {kind: summary(rounds) for kind, rounds in results.items()}
    found["t1_over_t0"] = ratios(results["t1"], results["t0"])
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench remote",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=8, help="of the real engine, at once (default: 8)")
    parser.add_argument("--tokens", type=int, default=64, help="length of each of them (default: 64)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    progress = Progress()
    result: dict[str, Any] = {"load_average": os.getloadavg()[0], "rounds": options.rounds}
    with tempfile.TemporaryDirectory() as folder:
        result["hop"] = hop(Path(folder), options.rounds, progress)
    with tempfile.TemporaryDirectory() as folder:
        result[f"streams_{options.streams}"] = topologies(Path(folder), options, progress)
    text = json.dumps(result)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0
