"""engines/worker/launch.py: how the process that computes ends, with what its library has started."""

import os
import signal
import subprocess
import sys
import time

import pytest

from engines.llmapi.pipeline import SHUT_DOWN_BY_FORCE
from engines.llmapi.settings import LlmApiParameters
from engines.worker import process_tree
from engines.worker.launch import WorkerProcess
from engines.worker.worker import LOAD_FAILED, Failed, Ready, Start
from tests.llmapi_models import STAND_IN, built_model

PIPELINE = "engines.llmapi.pipeline:LlmApiPipeline"


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))

    def start(**settings):
        return WorkerProcess(Start(PIPELINE, built_model(tmp_path).folder, LlmApiParameters(True, **settings)))

    return start


def is_running(pid):
    """A process that has ended may stay as a zombie where nobody asks after it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


def test_it_loads_and_ends_in_peace(start):
    process = start()
    assert isinstance(process.connection.recv(), Ready)
    assert process.close() == 0


def test_a_model_that_can_not_be_loaded_is_said_in_one_line(start, tmp_path):
    (tmp_path / "empty").mkdir()
    process = start(model=str(tmp_path / "empty"))
    failed = process.connection.recv()
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("BadParameter: ")
    assert process.close() == LOAD_FAILED


IMPATIENT = """
import os, sys
from engines.llmapi import pipeline
from engines.worker import process_tree
from tests.llmapi_models import Path, llmapi_pipeline
pipeline._SECONDS_TO_SHUT_DOWN = 0.2
made = llmapi_pipeline(Path(sys.argv[1]))
print(*process_tree.below(os.getpid()), flush=True)
made.close()
"""


def test_a_library_that_never_shuts_down_is_ended_with_its_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMAPI_STAND_IN_HANGS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(STAND_IN), str(STAND_IN.parent.parent))))
    process = subprocess.Popen([sys.executable, "-c", IMPATIENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with process.stdout as output:
        below = int(output.readline())
    assert process.wait(60) == SHUT_DOWN_BY_FORCE
    wait_until(lambda: not is_running(below))


def test_what_a_stuck_process_has_started_is_ended_with_it(start, monkeypatch):
    monkeypatch.setattr("engines.worker.launch._SECONDS_TO_END", 0.1)
    monkeypatch.setenv("LLMAPI_STAND_IN_HANGS", "1")
    process = start()
    assert isinstance(process.connection.recv(), Ready)
    (below,) = process_tree.below(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    assert process.close() == -signal.SIGKILL
    wait_until(lambda: not is_running(below))
