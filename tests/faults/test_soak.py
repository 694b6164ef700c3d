"""Ten minutes of ordinary load in which clients leave in mid-stream: nothing grows.

LLM_ROUTER_SOAK_SECONDS makes it shorter or longer.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.bench.open_loop import request_bytes
from scripts.host import processes, shared_memory
from tests.faults import victims
from tests.faults.load import Load
from tests.server.clients import idle

SECONDS = float(os.environ.get("LLM_ROUTER_SOAK_SECONDS", 600))
pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(SECONDS + 400)]

MIB = 1 << 20
LONG = {"text_input": "Tell a long story.", "max_tokens": 200, "min_tokens": 200}


@dataclass(frozen=True)
class Sizes:
    """Of a server and all its processes."""

    processes: int
    descriptors: int  # tritonserver's
    threads: int  # tritonserver's
    router_mib: float
    server_mib: float
    shared_memory_mib: float


def sizes(server) -> Sizes:
    pid = victims.tritonserver(server)
    memory = processes.memory_bytes(pid)
    files = shared_memory.FOLDER.glob(f"{shared_memory.PREFIX}{server.supervisor_pid}_*")
    return Sizes(
        processes=len(list(processes.tree(pid))),
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=len(os.listdir(f"/proc/{pid}/task")),
        router_mib=sum(memory["llm_router"]) / MIB,
        server_mib=sum(memory["tritonserver"]) / MIB,
        shared_memory_mib=sum(path.stat().st_blocks * 512 for path in map(Path, files)) / MIB,
    )


def leave_streams(server, ended: threading.Event) -> None:
    """Asks for a long answer twice a second and leaves it somewhere."""
    chance = random.Random(1)
    host = server.http_url.removeprefix("http://")
    address, port = host.split(":")
    while not ended.wait(0.5):
        with socket.create_connection((address, int(port))) as opened:
            opened.sendall(request_bytes(host, LONG))
            ended.wait(chance.random() * 0.4)


def test_a_soak_with_abandoned_streams_leaves_memory_descriptors_and_processes_as_they_were(server):
    ended = threading.Event()
    leaving = threading.Thread(target=leave_streams, args=(server, ended))
    with Load(server, streams=4, rate=2) as load:
        load.fault(f"soak of {SECONDS:g} s with abandoned streams")
        leaving.start()
        time.sleep(min(60.0, SECONDS / 4))  # Caches fill and pools grow to their size.
        early = sizes(server)
        report = load.watch(SECONDS)
        ended.set()
        leaving.join()
    idle(server)
    late = sizes(server)
    print(early, late, sep="\n")
    assert report.lost == 0
    assert late.processes == early.processes
    assert late.threads <= early.threads + 16
    assert late.router_mib < early.router_mib * 1.2
    assert late.server_mib < early.server_mib * 1.5
    assert late.shared_memory_mib <= early.shared_memory_mib * 1.1 + 16
    assert late.descriptors <= early.descriptors + 64
