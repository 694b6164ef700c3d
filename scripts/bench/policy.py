"""Measures the policy: what a decision costs with everything on, and how soon an edited file is in force everywhere.

python -m scripts.bench policy
python -m scripts.bench policy --seconds 5 --processes 32

A decision here is what the router does for each request: the state of the engines out of the table that so many
processes share, the time limit, `choose` with canary and tenants on, the completed decision. Times are of the clock
and, for machines that have other things to do, of the CPU alone. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bls.paths import ROOT
from bls.routing.decision import ALL_WELL, Decision, Prompt, State
from bls.routing.decision_log import Recorded, append
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, Policy, load_policy
from bls.routing.policy_thread import PolicyThread
from bls.routing.reload import Policies
from bls.routing.shadow_policy import ShadowPolicy
from bls.routing.shared_table import SharedTable
from bls.routing.time_limit import TimeLimit
from bls.routing.trials import trials
from bls.routing.verdicts import Verdicts

GOAL_P99_US = 100
_ON = {
    "CLIENTS_MAY_CHOOSE = False": "CLIENTS_MAY_CHOOSE = True",
    "CANARY_SHARE = 0.0": "CANARY_SHARE = 0.05",
    "TENANT_TIERS: dict[str, str] = {}": 'TENANT_TIERS: dict[str, str] = {"gold": LARGE}',
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench policy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement (default: 3)")
    parser.add_argument("--processes", type=int, default=32, help="processes that share the table (default: 32)")
    parser.add_argument("--reloads", type=int, default=5, help="number of edits to time (default: 5)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        costs = decisions(Path(folder), options.seconds, options.processes)
        seconds = reloads(Path(folder), options.processes, options.reloads)
    for name, (p50, p99, cpu_p50, cpu_p99) in costs.items():
        print(f"{name:<28} p50 {p50:7.1f}  p99 {p99:7.1f} us of the clock; {cpu_p50:7.1f} {cpu_p99:7.1f} of the CPU")
    p50, worst = statistics.median(seconds), max(seconds)
    print(f"{'edit in force everywhere':<28} p50 {p50:7.2f} s    max {worst:7.2f} s    {options.processes} processes")
    for what, p99 in (("of the clock", costs["everything"][1]), ("of the CPU", costs["everything"][3])):
        print(f"goal for everything, p99 of {GOAL_P99_US} us {what}: {'met' if p99 <= GOAL_P99_US else 'not met'}")
    print(json.dumps({"us": costs, "reload_s": [round(each, 3) for each in seconds], "processes": options.processes}))
    return 0


def decisions(folder: Path, seconds: float, processes: int) -> dict[str, tuple[float, ...]]:
    """p50 and p99 of the clock, then of the CPU, in us, by what is measured."""
    source = SHIPPED.read_text()
    for off, on in _ON.items():
        assert off in source
        source = source.replace(off, on)
    policy = load_policy(SHIPPED, source.encode())
    tables = [SharedTable(folder / "table") for _ in range(processes)]
    health, guard, settings = EngineHealth(tables[0]), TimeLimit(), policy.settings
    others = [
        EngineHealth(table).begin(settings.models[number % 2], settings) for number, table in enumerate(tables[1:])
    ]
    health.refresh(settings)
    prompts = [prompt for prompt, _ in trials(settings.models, 2000, seed=3)]
    log = folder / "decisions.jsonl"

    def decide(prompt: Prompt) -> Decision:
        return policy.decide(prompt, health.state(settings), guard)

    def attempt(prompt: Prompt) -> None:
        attempt = health.begin(settings.models[0], settings)
        assert attempt is not None
        attempt.worked()
        attempt.close()

    def recorded(prompt: Prompt) -> None:
        state = health.state(settings)
        append(log, Recorded(prompt, state, policy.decide(prompt, state), {"output_tokens": 1}), 1 << 24)

    def state(prompt: Prompt) -> State:
        return health.state(settings)

    made = decide(prompts[0])
    measured = {
        "choose": percentiles(lambda prompt: policy.choose(prompt, ALL_WELL), prompts, seconds),
        "the completed decision": percentiles(lambda prompt: policy.decide(prompt, ALL_WELL), prompts, seconds),
        "the state of the engines": percentiles(state, prompts, seconds),
        "everything": percentiles(decide, prompts, seconds),
        "its JSON": percentiles(lambda prompt: json.dumps(made.as_json()), prompts, seconds),
        "an attempt, begun and ended": percentiles(attempt, prompts, seconds),
        "a recorded decision": percentiles(recorded, prompts, seconds),
    }
    assert all(others)
    return measured


def percentiles(work: Callable[[Prompt], Any], prompts: list[Prompt], seconds: float) -> tuple[float, ...]:
    found: list[float] = []
    for clock in (time.perf_counter_ns, time.thread_time_ns):
        times = []
        until = time.perf_counter() + seconds / 2
        while time.perf_counter() < until:
            for prompt in prompts:
                start = clock()
                work(prompt)
                times.append(clock() - start)
        times.sort()
        found += [round(times[len(times) * percent // 100] / 1e3, 1) for percent in (50, 99)]
    return tuple(found)


def reloads(folder: Path, processes: int, edits: int) -> list[float]:
    """Seconds from each save to the last process's deciding by it; each process is one, with its own thread."""
    file = folder / "policy.py"
    file.write_bytes(SHIPPED.read_bytes())
    command = [sys.executable, "-m", "scripts.bench.policy", str(file), str(folder / "shared")]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=ROOT) for _ in range(processes)
    ]
    seconds = []
    try:
        for child in children:
            _next_version(child)
        for number in range(max(1, edits)):
            time.sleep(1.5)
            draft = file.with_suffix(".new")
            draft.write_text(SHIPPED.read_text().replace("RETRIES = 1", f"RETRIES = {number % 9 + 2}"))
            saved = time.time()
            draft.replace(file)
            seconds.append(max(_next_version(child) for child in children) - saved)
    finally:
        for child in children:
            child.communicate()
    return seconds


def _next_version(child: subprocess.Popen[bytes]) -> float:
    """When the child began to decide by another version, in seconds of the clock."""
    assert child.stdout is not None
    return float(child.stdout.readline())


def follow(file: Path, table: Path) -> None:
    """One of the processes: prints the time at each change, until its input ends."""
    shared = SharedTable(table)
    verdicts = Verdicts(shared)
    policies = Policies(file, verdicts)
    policy_thread = PolicyThread(policies, ShadowPolicy(file.parent, verdicts))
    seen: Policy | None = None
    os.set_blocking(sys.stdin.fileno(), False)
    while _is_open():
        if policies.current is not seen:
            seen = policies.current
            print(time.time(), flush=True)
        time.sleep(0.02)
    policy_thread.close()


def _is_open() -> bool:
    try:
        return os.read(sys.stdin.fileno(), 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    follow(Path(sys.argv[1]), Path(sys.argv[2]))
