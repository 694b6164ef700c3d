"""Ten thousand clients that leave, on the stand-in; tests/faults/test_gateway.py has some on the real server."""

from __future__ import annotations

import asyncio
import os

import pytest

from scripts.host import processes
from tests.gateway.abandoning import abandon
from tests.gateway.gateway_process import running
from tests.server.echo_repository import ENDLESS
from tests.waiting import eventually

BODY = {"model": "auto", "prompt": "one two three", "max_tokens": 8000, "seed": ENDLESS * 1000 + 5}


def left_of(gateway, fake):
    """What is still there of anybody: answers, and open files of the gateway's process."""
    pid = gateway.process.pid
    return gateway.metric("llm_gateway_in_flight") + fake.running, len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_streams_that_are_abandoned_leave_nothing_behind(tmp_path, fake, count):
    with running(tmp_path, fake.target) as gateway:
        assert gateway.complete("one").status == 200
        _, files = left_of(gateway, fake)
        asyncio.run(abandon(gateway.port, 300, 16, BODY))
        assert eventually(lambda: left_of(gateway, fake) == (0, files), 60)
        (before,) = processes.memory_bytes(gateway.process.pid).values()
        asyncio.run(abandon(gateway.port, count, 16, BODY))
        assert eventually(lambda: left_of(gateway, fake) == (0, files), 60)
        (after,) = processes.memory_bytes(gateway.process.pid).values()
        assert sum(after) - sum(before) < 10 << 20
        assert "Traceback" not in gateway.log and gateway.complete("one").status == 200
