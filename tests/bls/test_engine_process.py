"""What the processes of a server know of the one that serves an engine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bls import engine_process
from bls.paths import ROOT
from bls.routing import server_files
from scripts.host import shared_memory

PREFIX = "llm_router_shm_1_ab_"


@pytest.fixture
def announcing(monkeypatch, tmp_path):
    """Starts a process that serves `model`; its handle, once it has said so."""
    yield from _announcing(monkeypatch, tmp_path, PREFIX)


@pytest.fixture
def announcing_in_shared_memory(monkeypatch):
    prefix = shared_memory.new_prefix()
    yield from _announcing(monkeypatch, shared_memory.FOLDER, prefix)
    shared_memory.remove(prefix)


def _announcing(monkeypatch, folder, prefix):
    monkeypatch.setattr(server_files, "SHARED_MEMORY", folder)
    monkeypatch.setenv(server_files.PREFIX_VARIABLE, prefix)
    started = []

    def start(model: str) -> subprocess.Popen[str]:
        code = f"""
import pathlib, time
from bls import engine_process
from bls.routing import server_files
from scripts.host import shared_memory
server_files.SHARED_MEMORY = pathlib.Path({str(folder)!r})
engine_process.announce({model!r})
print("done", flush=True)
time.sleep(600)
"""
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout and process.stdout.readline() == "done\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_that_serves_an_engine_is_known_by_its_name_and_missed_when_it_dies(announcing):
    process = announcing("tensorrt_llm_small")
    found = engine_process.of("tensorrt_llm_small")
    assert found is not None and found.pid == process.pid
    assert not found.is_gone
    assert engine_process.of("tensorrt_llm_large") is None
    process.kill()
    process.wait()
    assert found.is_gone
    assert engine_process.of("tensorrt_llm_small") is None


def test_the_newest_one_serves(announcing):
    announcing("tensorrt_llm_small")
    newer = announcing("tensorrt_llm_small")
    found = engine_process.of("tensorrt_llm_small")
    assert found is not None and found.pid == newer.pid


def test_a_process_that_has_ended_and_is_not_waited_for_is_gone(announcing):
    process = announcing("tensorrt_llm_small")
    found = engine_process.of("tensorrt_llm_small")
    process.kill()
    while found is not None and not found.is_gone:
        pass


def test_a_number_that_another_process_has_now_is_not_the_engines(announcing):
    process = announcing("tensorrt_llm_small")
    assert engine_process.EngineProcess(process.pid, "1").is_gone


def test_another_server_that_starts_on_the_machine_leaves_what_a_living_process_has_announced(
    announcing_in_shared_memory,
):
    process = announcing_in_shared_memory("tensorrt_llm_small")
    file = server_files.path("engine_tensorrt_llm_small")
    os.utime(file, (0, 0))  # announced long ago
    shared_memory.remove_stale()
    found = engine_process.of("tensorrt_llm_small")
    assert found is not None and found.pid == process.pid
    process.kill()
    process.wait()
    shared_memory.remove_stale()
    assert not file.exists()
