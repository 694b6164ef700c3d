"""What the word filter takes of memory in each process, and what the processes share."""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bls.words.stream_filter import WordFilter
from bls.words.table import WordTable

PUSH_CHARACTERS = 4
PROCESSES = 4


def memory(path: Path, text: str) -> dict[str, Any]:
    """What a process with the table and a filtered text has more than one without, and what all of them share."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(PROCESSES)]
    workers = [context.Process(target=worker, args=(path, text, child)) for _, child in pipes]
    for process in workers:
        process.start()
    for parent, _ in pipes:
        parent.recv()  # all of them have it mapped now
    for parent, _ in pipes:
        parent.send("measure")
    found = [parent.recv() for parent, _ in pipes]
    for parent, _ in pipes:
        parent.send("end")
    for process in workers:
        process.join()
    return {
        "processes": PROCESSES,
        "private_kb_each": round(statistics.fmean(own for own, _, _ in found)),
        "mapped_kb_each": round(statistics.fmean(mapped for _, mapped, _ in found)),
        "mapped_pss_kb_each": round(statistics.fmean(share for _, _, share in found)),
    }


def worker(path: Path, text: str, pipe: Connection) -> None:
    before = private_kb()
    table = WordTable(path)
    stream = WordFilter(table)
    for at in range(0, len(text), PUSH_CHARACTERS):
        stream.push(text[at : at + PUSH_CHARACTERS])
    gc.collect()
    pipe.send("ready")
    pipe.recv()
    mapped, share = mapping_kb(path)
    pipe.send((private_kb() - before, mapped, share))
    pipe.recv()


def private_kb() -> int:
    """Kilobytes that only this process has, by Linux."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_Dirty"))


def mapping_kb(path: Path) -> tuple[int, int]:
    """Resident and proportional kilobytes of the mapped file."""
    resident = share = 0
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split()[0].endswith(":"):
            inside = line.endswith(os.fspath(path))
        elif inside and line.startswith("Rss:"):
            resident += int(line.split()[1])
        elif inside and line.startswith("Pss:"):
            share += int(line.split()[1])
    return resident, share
