"""What a response costs each process on its way, from /proc; and perf, where it is installed, by library."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bls.contract import ROUTER
from scripts.host import processes

_TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
_SAMPLES_PER_SECOND = 499
_WAKE_UPS = "\nvoluntary_ctxt_switches:"


class Cost(NamedTuple):
    """CPU time in us, and how often a thread waited and was woken."""

    user: float = 0.0
    system: float = 0.0
    wake_ups: float = 0.0

    def plus(self, other: Cost, times: float = 1) -> Cost:
        return Cost(*(mine + times * its for mine, its in zip(self, other, strict=True)))

    def shared_by(self, count: int) -> Cost:
        return Cost(*(value / count for value in self))


def so_far(pid: int) -> dict[str, Cost]:
    """Of a server's processes, by role; a router's main threads, which answer, apart from its other ones."""
    found: dict[str, Cost] = defaultdict(Cost)
    for process in processes.tree(pid):
        role = processes.role(process)
        whole = _cost(process)
        if role.startswith(ROUTER):
            main = _cost(process, process)
            found[f"{role}, main thread"] = found[f"{role}, main thread"].plus(main)
            role, whole = f"{role}, other threads", whole.plus(main, -1)
        found[role] = found[role].plus(whole)
    return dict(found)


def between(before: Mapping[str, Cost], after: Mapping[str, Cost]) -> dict[str, Cost]:
    return {name: cost.plus(before.get(name, Cost()), -1) for name, cost in after.items()}


def _cost(process: int, thread: int | None = None) -> Cost:
    """Of one thread, or of all: threads that have ended are in the times, and not in the wake-ups."""
    folder = Path(f"/proc/{process}")
    tasks = folder / "task"
    try:
        fields = (tasks / str(thread) if thread else folder).joinpath("stat").read_text().rpartition(")")[2].split()
        wake_ups = sum(map(_wake_ups, [str(thread)] if thread else os.listdir(tasks), repeat(tasks)))
    except OSError:
        return Cost()  # it has ended
    return Cost(int(fields[11]) * _TICK_US, int(fields[12]) * _TICK_US, wake_ups)


def _wake_ups(thread: str, tasks: Path) -> int:
    try:
        return int((tasks / thread / "status").read_text().partition(_WAKE_UPS)[2].split(maxsplit=1)[0])
    except (OSError, IndexError):
        return 0


def medians(rounds: Sequence[Mapping[str, Cost]]) -> dict[str, Cost]:
    """Each figure's median over the rounds."""
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: Cost(*map(median, zip(*(each.get(name, Cost()) for each in rounds), strict=True))) for name in names}


def table(title: str, costs: Mapping[str, Cost]) -> str:
    """Where a response's CPU time goes, the dearest first; without what costs nothing."""
    lines = [f"\n{title + ', a response':<44}{'user us':>10}{'system us':>11}{'wake-ups':>10}"]
    for name, cost in sorted(costs.items(), key=lambda item: -item[1].user - item[1].system):
        if cost.user + cost.system >= 0.5:
            lines.append(f"  {name:<42}{cost.user:10.0f}{cost.system:11.0f}{cost.wake_ups:10.2f}")
    return "\n".join(lines)


def by_library(pids: Sequence[int], run: Callable[[], object]) -> dict[str, float]:
    """The shares of the processes' CPU time while `run` runs, by library, from perf; empty where there is no perf."""
    perf = shutil.which("perf")
    if perf is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/perf.data"
        command = [perf, "record", "-q", "-e", "cpu-clock", "-F", str(_SAMPLES_PER_SECOND), "-o", file]
        with subprocess.Popen([*command, "-p", ",".join(map(str, pids))], stderr=subprocess.DEVNULL) as recorder:
            try:
                run()
            finally:
                with suppress(ProcessLookupError):
                    recorder.send_signal(signal.SIGINT)
        command = [perf, "report", "-i", file, "--stdio", "-q", "--no-children", "-F", "sample,dso", "-t", "\t"]
        report = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return shares(report.stdout)


def shares(report: str) -> dict[str, float]:
    """Of the samples, by library, from lines of their number, a tab, and its path; the largest first."""
    samples: dict[str, int] = defaultdict(int)
    for line in report.splitlines():
        count, tab, library = line.partition("\t")
        if tab and count.strip().isdigit():
            samples["kernel" if library.startswith("[") else Path(library.strip()).name] += int(count)
    total = sum(samples.values())
    return {name: count / total for name, count in sorted(samples.items(), key=lambda item: -item[1])}


def library_table(found: Mapping[str, float]) -> str:
    """What `by_library` found; without what takes less than 1 %."""
    if not found:
        return "\nno perf on this machine: the router's time is not told by library"
    return "\nthe router's processes by library: " + ", ".join(
        f"{name} {share:.0%}" for name, share in found.items() if share >= 0.01
    )
