"""The router with few processes and with many, beside each other on one server: starting, doing nothing, and a token.

Each is a copy of llm_router, added to the running server. The policy's limits of requests at the engines are lifted:
what waits in an engine's queue is not turned away.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bls.contract import ROUTER
from bls.paths import MODEL_REPOSITORY, ROOT
from bls.routing.policy_file import SHIPPED, VARIABLE
from scripts.bench import response_cost
from scripts.bench.local_server import Server, running_server
from scripts.bench.response_cost import Cost
from scripts.bench.rounds import Round, alternate, prompts, router_request, served, summary
from scripts.host import processes
from scripts.host.progress import Progress

SETTLE_SECONDS = 3.0
_COUNT = re.compile(r"(instance_group \[ \{ count: )\d+")
_LIMITS = (
    (re.compile(r"^MAX_WAIT_SECONDS = \S+", re.MULTILINE), "MAX_WAIT_SECONDS = 300.0"),
    (
        re.compile(r"^MAX_IN_FLIGHT: .* = \{\}", re.MULTILINE),
        "MAX_IN_FLIGHT: dict[str, int] = {{SMALL: {places}, LARGE: {places}}}",
    ),
)


def repository(folder: Path) -> Path:
    """The models that are served, but for the router."""
    models = folder / "model_repository"
    shutil.copytree(MODEL_REPOSITORY, models, ignore=shutil.ignore_patterns(ROUTER))
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    shutil.copytree(ROOT / "words", folder / "words")
    return models


def policy(folder: Path, places: int) -> Path:
    """The shipped policy with so many places at each engine, however long its queue."""
    text = SHIPPED.read_text(encoding="utf-8")
    for pattern, line in _LIMITS:
        text, found = pattern.subn(line.format(places=places), text)
        assert found == 1, pattern
    (folder / "policy.py").write_text(text, encoding="utf-8")
    return folder / "policy.py"


def add(server: Server, count: int) -> dict[str, float]:
    """Loads a router with so many processes; the seconds that each took, of the clock and of CPU."""
    model = server.repository / _name(count)
    shutil.copytree(MODEL_REPOSITORY / ROUTER, model)
    config = model / "config.pbtxt"
    text, found = _COUNT.subn(rf"\g<1>{count}", config.read_text(encoding="utf-8"))
    assert found == 1
    config.write_text(text, encoding="utf-8")
    begin = time.perf_counter()
    server.control.load(model.name)
    wall = time.perf_counter() - begin
    cpu = _of(response_cost.so_far(server.server_pid), model.name)
    return {"seconds": wall / count, "cpu_seconds": (cpu.user + cpu.system) / 1e6 / count}


def idle(server: Server, counts: list[int], seconds: float) -> dict[int, dict[str, float]]:
    """What each router's processes do together while nobody asks: their share of a core in %, wake-ups a second."""
    time.sleep(SETTLE_SECONDS)
    begin, before = time.perf_counter(), response_cost.so_far(server.server_pid)
    time.sleep(seconds)
    spent = response_cost.between(before, response_cost.so_far(server.server_pid))
    elapsed = time.perf_counter() - begin
    costs = {count: _of(spent, _name(count)) for count in counts}
    return {
        count: {"core_percent": (cost.user + cost.system) / elapsed / 1e4, "wake_ups": cost.wake_ups / elapsed}
        for count, cost in costs.items()
    }


def measured(options: argparse.Namespace, streams: list[int]) -> dict[str, Any]:
    """By number of processes: start, idle cost, memory; by number of streams, that they can answer: cost of a token."""
    counts: list[int] = options.processes
    result: dict[str, Any] = {"rounds": options.rounds, "tokens": options.tokens}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {**os.environ, VARIABLE: str(policy(folder, max(counts)))}
        with running_server(folder, repository(folder), env=env) as server:
            starts = {count: add(server, count) for count in counts}
            idles = idle(server, counts, options.idle_seconds)
            sizes = processes.memory_bytes(server.server_pid)
            for count in counts:
                result[f"processes_{count}"] = {
                    "start_a_process": starts[count],
                    "idle": idles[count],
                    "pss_mb": statistics.median(sizes[_name(count)]) / 1e6,
                }
            print(processes_table(result), flush=True)
            kinds: dict[str, Callable[[], Round]] = {
                f"{count} processes, {each} streams": partial(
                    served,
                    server,
                    [router_request(text, options.tokens, _name(count)) for text in prompts(each)],
                )
                for count in counts
                for each in streams
                if each <= count
            }
            rounds = alternate(kinds, options.rounds, Progress(), "rounds of each")
    result["load"] = {kind: summary(each) for kind, each in rounds.items()}
    print(load_table(result["load"]), flush=True)
    return result


def processes_table(result: dict[str, Any]) -> str:
    """What each router's processes cost before anybody asks."""
    lines = [f"{'processes':<12}{'start ms':>10}{'CPU ms':>9}{'idle, % of a core':>19}{'wake-ups/s':>12}{'PSS MB':>9}"]
    for name, found in result.items():
        if name.startswith("processes_"):
            start, idle = found["start_a_process"], found["idle"]
            lines.append(
                f"{name.removeprefix('processes_'):<12}{start['seconds'] * 1e3:10.0f}{start['cpu_seconds'] * 1e3:9.0f}"
                f"{idle['core_percent']:19.2f}{idle['wake_ups']:12.1f}{found['pss_mb']:9.1f}"
            )
    return "\n".join(lines)


def load_table(load: dict[str, dict[str, float]]) -> str:
    """What each load cost, and how much of the first one's a token that is."""
    first = next(iter(load.values()))["cpu_us_per_token"]
    lines = [f"\n{'':<32}{'tokens/s':>10}{'TTFT p50 ms':>13}{'CPU us/token':>14}{'of the first':>14}"]
    for kind, found in load.items():
        lines.append(
            f"{kind:<32}{found['tokens_per_second']:10.1f}{found['first_token_ms_p50']:13.1f}"
            f"{found['cpu_us_per_token']:14.1f}{found['cpu_us_per_token'] / first:14.2f}"
        )
    return "\n".join(lines)


def _name(count: int) -> str:
    return f"{ROUTER}_{count}"


def _of(costs: dict[str, Cost], model: str) -> Cost:
    total = Cost()
    for name, cost in costs.items():
        if name.partition(",")[0] == model:
            total = total.plus(cost)
    return total
