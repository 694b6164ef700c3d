"""What the gateway adds to gRPC: in alternating rounds, in front of a stand-in for the router that answers at once.

python -m scripts.bench gateway
python -m scripts.bench gateway --rounds 5
python -m scripts.bench gateway --engine          the tokens/s at 32 streams too, on the real server and engine

A core's worth is counted in the gateway's own CPU time, so that what else the machine does changes little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bls.paths import ROOT
from scripts.bench.gateway_load import Answers, ByGrpc, ByHttp, load
from scripts.bench.local_server import running_server
from scripts.host import processes

WORDS = 200  # of a streamed answer of the stand-in
ENGINE_WORDS = 64
STREAMS = 32


@contextmanager
def started(module: str, *arguments: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Pid of the module's process and the port that it says it listens on."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile() as rest:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(pattern, line.decode()):
                    break
                rest.write(line)
            else:
                raise RuntimeError(f"{module} did not start")
            with open(os.devnull, "wb") as nowhere:
                drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=nowhere)
            yield process.pid, int(found[1])
        finally:
            process.terminate()
            process.wait(60)
            drain.wait(60)


def gateway_beside(target: str) -> Any:
    flags = (f"--triton={target}", "--triton-metrics=none", "--port=0")
    return started("scripts.gateway", *flags, pattern=r"listening on http://\S+:(\d+)")


def cpu_s(pid: int) -> float:
    return sum(processes.cpu_seconds(pid).values())


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def milliseconds(answers: Answers) -> tuple[float, float]:
    """p50 and p99."""
    return percentile(answers.seconds, 0.5) * 1000, percentile(answers.seconds, 0.99) * 1000


async def stand_in_rounds(pid: int, port: int, target: str, rounds: int) -> dict[str, Any]:
    """Medians over the rounds."""
    direct, through = ByGrpc(target), ByHttp(port)
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    await load(through.one, 200, 8, 2, False)
    await load(direct.one, 200, 8, 2, False)
    for _ in range(rounds):
        for at_a_time, count in ((1, 400), (STREAMS, 1600)):
            by_grpc = milliseconds(await load(direct.one, count, at_a_time, 2, False))
            by_http = milliseconds(await load(through.one, count, at_a_time, 2, False))
            for name, one, other in zip(("p50", "p99"), by_grpc, by_http, strict=True):
                note(f"grpc_{name}_ms_at_{at_a_time}", one)
                note(f"added_{name}_ms_at_{at_a_time}", other - one)
        before = cpu_s(pid)
        whole = await load(through.one, 2000, 16, 2, False)
        between = cpu_s(pid)
        streamed = await load(through.one, 96, STREAMS, WORDS, True)
        note("requests_a_core", len(whole.seconds) / (between - before))
        note("events_a_core", streamed.events / (cpu_s(pid) - between))
    await direct.close()
    await through.close()
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


async def engine_rounds(port: int, target: str, rounds: int) -> dict[str, Any]:
    direct, through = ByGrpc(target), ByHttp(port)
    ratios, rates = [], []
    await load(direct.one, STREAMS, STREAMS, 8, True)
    for _ in range(rounds):
        by_grpc = await load(direct.one, STREAMS, STREAMS, ENGINE_WORDS, True)
        by_http = await load(through.one, STREAMS, STREAMS, ENGINE_WORDS, True)
        rates.append(by_grpc.tokens / by_grpc.total_s)
        ratios.append(by_grpc.total_s / by_http.total_s)  # the same tokens: the answers are greedy
    await direct.close()
    await through.close()
    return {
        "engine_tokens_per_second": round(statistics.median(rates), 1),
        "gateway_of_grpc": round(statistics.median(ratios), 3),
        "gateway_of_grpc_range": [round(min(ratios), 3), round(max(ratios), 3)],
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", action="store_true", help="on the real engine too")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    with started("scripts.bench.gateway_stand_in", pattern=r"^(\d+)$") as (_, router):
        target = f"127.0.0.1:{router}"
        with gateway_beside(target) as (pid, port):
            found |= uvloop.run(stand_in_rounds(pid, port, target, options.rounds))
            (found["pss_mb"],) = (round(sum(sizes) / 2**20, 1) for sizes in processes.memory_bytes(pid).values())
    if options.engine:
        with (
            tempfile.TemporaryDirectory() as folder,
            running_server(Path(folder)) as server,
            gateway_beside(server.grpc_url) as (_, port),
        ):
            found |= asyncio.run(engine_rounds(port, server.grpc_url, options.rounds))
    for name, value in found.items():
        print(f"{name:28} {value}")
    print(json.dumps(found))
    return 0
