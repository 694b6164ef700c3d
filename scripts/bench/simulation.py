"""The simulation against real servers: how long the same requests take, at one pod, at two and at three.

    python -m scripts.bench simulation [--pods 1,2,3] [--arrivals bursty] [--rate 5] [--seconds 200] [--json FILE]

Real are the router's server, whose tensorrt_llm_small chooses among the engine servers and forwards to them, and these,
each on a loopback address of its own. Their engines sleep instead of computing, since three that compute would share
this machine's cores; so what is checked is the choice of a pod, the queues, the batches, and what Triton and gRPC add.
The simulation runs WORLDS times with other owners of each beginning of a prompt, which in the servers are as their
addresses happen to fall: its figures are medians, with the least and the most. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_aio

from bls.contract import ENGINE_CONTROL, SMALL
from scripts.bench.batching_names import BEGINNING, COUNTERS, HITS, REQUESTS, TOKENS
from scripts.bench.local_server import Server, free_ports, running_server
from scripts.bench.remote import copied, remote_flags, sleeping
from scripts.bench.router import engine_request
from scripts.bench.stream_load import run_one
from scripts.host.progress import Progress
from scripts.simulate.arrivals import Arrival, Load, generate
from scripts.simulate.pod import Engine
from scripts.simulate.run import Outcome, Simulation, Site

WORLDS = 20
# Never full: what is turned away at one pod the router tries at the next, which the simulation doesn't.
ENGINE = Engine(places=8, base_s=0.010, stream_s=0.00125, prompt_cost=0.02, cached_share=0.5, most_waiting=100_000)
SHARES = (50, 90, 99)
Figures = Mapping[str, float]


def whole(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """With whole tokens, and prompts that fill the blocks by which a router chooses."""
    return [
        replace(each, prompt_tokens=max(BEGINNING, round(each.prompt_tokens)), tokens=max(1, round(each.tokens)))
        for each in arrivals
    ]


def simulated(arrivals: Sequence[Arrival], pods: int, world: int, prefixes: int) -> Figures:
    """One run, in which other pods own each beginning."""
    own = [replace(each, prefix=each.prefix + world * prefixes) for each in arrivals]
    site = Site(pods, choice="prefix_affinity", engine=ENGINE)
    outcome = Simulation(site, own, seed=world).run()
    firsts, ends = _times(outcome)
    served = [pod.tokens for pod in outcome.pods]
    return figures(firsts, ends, sum(pod.hits for pod in outcome.pods), served)


def _times(outcome: Outcome) -> tuple[list[float], list[float]]:
    """Until the first token, and until the last, of each request in its order."""
    firsts, ends = [], []
    for each in outcome.requests:
        assert each.first_s is not None and each.ended_s is not None
        firsts.append(each.first_s - each.arrival.at_s)
        ends.append(each.ended_s - each.arrival.at_s)
    return firsts, ends


def figures(firsts: Sequence[float], ends: Sequence[float], hits: float, tokens: Sequence[float]) -> Figures:
    """Seconds, and shares of 0 to 1. `tokens` are those of each pod."""
    found: dict[str, float] = {}
    for name, seconds in (("first", firsts), ("answer", ends)):
        found |= {f"{name}_p{share}_s": float(np.percentile(seconds, share)) for share in SHARES}
        found[f"{name}_mean_s"] = float(np.mean(seconds))
    return {**found, "hit_share": hits / len(firsts), "imbalance": max(tokens) / float(np.mean(tokens))}


def distance(some: Sequence[float], others: Sequence[float]) -> float:
    """Of Kolmogorov and Smirnov: by how much at most their shares below any time differ, 0 to 1."""
    at = np.concatenate([some, others])
    below = (np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (some, others))
    return float(np.max(np.abs(np.subtract(*below))))


def engine_servers(stack: ExitStack, folder: Path, count: int) -> list[Server]:
    """So many, each at an address of its own and with the same ports; they end with the stack."""
    own = [folder / f"engine-{number}" for number in range(1, count + 1)]
    for each in (folder / "engines", *own):
        each.mkdir()
    models = sleeping(folder / "engines", "batching_engine.py", **asdict(ENGINE))
    ports = [f"--{kind}-port={port}" for kind, port in zip(("http", "grpc", "metrics"), free_ports(3), strict=True)]
    servers = [
        running_server(each, models, "--tier=small", f"--host=127.0.1.{number}", *ports)
        for number, each in enumerate(own, start=1)
    ]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(stack.enter_context, servers))


async def replay(url: str, arrivals: Sequence[Arrival]) -> tuple[list[float], list[float]]:
    """Asks a router's server for each when it is due; seconds from then to its first token and to its end."""
    async with grpc_aio.InferenceServerClient(url) as client:
        await client.is_server_live()
        begin = time.perf_counter() + 1.0

        async def one(each: Arrival) -> tuple[float, float]:
            ids = np.full((1, int(each.prompt_tokens)), 7, np.int32)
            ids[:, :BEGINNING] = each.prefix + 10
            request = engine_request(ids, int(each.tokens))
            await asyncio.sleep(begin + each.at_s - time.perf_counter())
            stream = await run_one(client, request)
            return stream.arrivals[0] - begin - each.at_s, stream.arrivals[-1] - begin - each.at_s

        times = await asyncio.gather(*map(one, arrivals))
    return [first for first, _ in times], [end for _, end in times]


def counted(engine: Server, name: str) -> float:
    """A counter of scripts/bench/batching_engine.py."""
    with urllib.request.urlopen(engine.metrics_url) as page:
        found = re.search(rf"^{name}{{[^}}]*}} (\S+)", page.read().decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


def measured(folder: Path, engines: Sequence[Server], arrivals: Sequence[Arrival]) -> tuple[Figures, Any]:
    """Of a router's server before these, and the times that they are made of."""
    folder.mkdir()
    models = copied(folder, (ENGINE_CONTROL, SMALL))
    with running_server(folder, models, *remote_flags(models, *engines)) as router:
        before = [{name: counted(each, name) for name in COUNTERS} for each in engines]
        firsts, ends = asyncio.run(replay(router.grpc_url, arrivals))
        after = [{name: counted(each, name) for name in COUNTERS} for each in engines]
    grown = [{name: late[name] - early[name] for name in late} for early, late in zip(before, after, strict=True)]
    assert sum(each[REQUESTS] for each in grown) == len(arrivals)
    hits = sum(each[HITS] for each in grown)
    return figures(firsts, ends, hits, [each[TOKENS] for each in grown]), (firsts, ends)


def compared(folder: Path, engines: Sequence[Server], load: Load, seed: int) -> dict[str, Any]:
    """Both, under the same arrivals, at as many pods as there are engine servers."""
    pods = len(engines)
    arrivals = whole(generate(replace(load, rate=load.rate * pods), seed))
    real, times = measured(folder, engines, arrivals)
    worlds = [simulated(arrivals, pods, world, load.prefixes) for world in range(WORLDS)]
    outcome = Simulation(Site(pods, choice="prefix_affinity", engine=ENGINE), arrivals, seed).run()
    apart = [distance(some, others) for some, others in zip(times, _times(outcome), strict=True)]
    return {
        "pods": pods,
        "requests": len(arrivals),
        "load_average": round(os.getloadavg()[0], 1),
        "distance": dict(zip(("first", "answer"), (round(each, 3) for each in apart), strict=True)),
        "figures": {name: _row(real[name], [world[name] for world in worlds]) for name in real},
    }


def _row(real: float, worlds: Sequence[float]) -> dict[str, float]:
    found = {
        "measured": real,
        "simulated": statistics.median(worlds),
        "least": min(worlds),
        "most": max(worlds),
    }
    return {name: round(value, 4) for name, value in found.items()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """For a person: of each figure what was measured, and what was simulated."""
    lines = []
    for row in rows:
        apart = ", ".join(f"{name} {value}" for name, value in row["distance"].items())
        lines.append(
            f"pods {row['pods']}, requests {row['requests']}, load average {row['load_average']}; apart {apart}"
        )
        for name, each in row["figures"].items():
            lines.append(
                f"  {name:<15} measured {each['measured']:8.3f}  simulated {each['simulated']:8.3f} "
                f"({each['least']:.3f} to {each['most']:.3f})"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--pods", default="1,2,3", metavar="N,N", help="how many engine servers (1,2,3)")
    add("--arrivals", default="bursty", metavar="KIND", help="of scripts/simulate (bursty)")
    add("--rate", type=float, default=5.0, metavar="N", help="requests a second for each pod, the mean (5)")
    add("--seconds", type=float, default=200.0, metavar="S", help="for so long (200)")
    add("--tokens", type=float, default=40.0, metavar="N", help="of an answer, the mean (40)")
    add("--seed", type=int, default=1)
    add("--json", type=Path, metavar="FILE", help="also write the result to this file")
    options = parser.parse_args(arguments)
    counts = [int(each) for each in options.pods.split(",")]
    load = Load(options.arrivals, options.rate, options.seconds, tokens=options.tokens)
    progress = Progress()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        progress.step("engine servers", f"{max(counts)} start")
        engines = engine_servers(stack, Path(name), max(counts))
        progress.done()
        for count in counts:
            progress.step(f"{count} pods", f"{options.seconds:.0f} s of arrivals, and what is left of them")
            rows.append(compared(Path(name, f"router-{len(rows)}"), engines[:count], load, options.seed))
            progress.done()
    print(table(rows))
    text = json.dumps({"options": {name: str(value) for name, value in vars(options).items()}, "rows": rows})
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0
