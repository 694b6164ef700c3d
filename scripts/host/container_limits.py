"""What a container may use of its machine, out of the files of cgroup v2. None stands where nothing is limited."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """`cores` may be a fraction; bytes; `oom_kills` counts processes that were killed as the memory ran out."""

    cores: float | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    oom_kills: int | None = None


def read(folder: Path) -> Limits:
    """Of the cgroup whose files are in `folder`, which need not exist."""
    total, current = _number(folder / "memory.max"), _number(folder / "memory.current")
    cores, kills = _cores(folder / "cpu.max"), _field(folder / "memory.events", "oom_kill")
    if total is None or current is None:
        return Limits(cores, oom_kills=kills)
    # Pages of files are given back when they are needed.
    available = total - current + (_field(folder / "memory.stat", "inactive_file") or 0)
    return Limits(cores, total, available, kills)


def _cores(path: Path) -> float | None:
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = path.read_text().split()
        return int(quota) / int(period)  # "max" is no number
    return None


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _field(path: Path, name: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return None
