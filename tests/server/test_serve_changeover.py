"""Servers that die or are replaced, and what follows them, on the real tritonserver."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.host import processes
from scripts.server.tritonserver import ONE_BY_ONE
from tests.server.serving import ROOT
from tests.server.sleeper import CODE, sleep
from tests.server.supervised import LACKS_A_MODULE, add_model, leaves_nothing, living, says, shared_memory_of

pytestmark = pytest.mark.server

ABORTS_UNLESS_ONE_BY_ONE = f"""
import os
import signal

if os.environ.get({ONE_BY_ONE[0]!r}) != {ONE_BY_ONE[1]!r}:
    os.kill(os.getppid(), signal.SIGABRT)
{CODE}"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return add_model(tmp_path / "models", "sleeper")


def test_a_server_that_dies_is_noticed_and_cleaned_up_after(serve, repository):
    server = serve(repository, "--no-restart")
    os.kill(server.server_pid, signal.SIGKILL)
    assert server.wait(20) == 4
    assert "tritonserver died: killed by SIGKILL" in server.console.read_text()
    assert leaves_nothing(server)


def test_a_server_that_dies_is_started_again(serve, repository):
    server = serve(repository)
    os.kill(server.server_pid, signal.SIGABRT)
    assert says(server, "the new server serves")
    assert "tritonserver died: killed by SIGABRT" in server.console.read_text()
    assert sleep(server, 0.0) == [0.0]
    assert not living(server.server_pid)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert shared_memory_of(server.supervisor_pid) == []


def test_a_server_that_is_aborted_twice_while_it_loads_is_started_with_little_at_a_time(serve, repository):
    (repository / "sleeper" / "1" / "model.py").write_text(ABORTS_UNLESS_ONE_BY_ONE)
    server = serve(repository)
    said = "error: tritonserver ended while loading, killed by SIGABRT; starting it again"
    assert server.console.read_text().count(said) == 2
    assert sleep(server, 0.0) == [0.0]


def test_a_new_server_takes_over_and_no_request_is_lost(serve, repository):
    server = serve(repository, "--grpc-max-connection-age=1000")
    port = server.http_url.rpartition(":")[2]
    with ThreadPoolExecutor() as pool:
        long = pool.submit(sleep, server, 12.0)
        asked = [pool.submit(sleep, server, 0.25)]
        command = [ROOT / "scripts" / "serve", "cpu", "--replace", f"--http-port={port}"]
        replacing = subprocess.Popen([*command, f"--model-repository={repository}"])
        while replacing.poll() is None:
            asked.append(pool.submit(sleep, server, 0.25))
            time.sleep(0.2)
        assert replacing.returncode == 0
        assert [answer.result() for answer in asked] == [[0.25]] * len(asked)
        assert long.result() == [12.0]
    assert not living(server.server_pid)
    assert "changing over to a new server (on request)" in server.console.read_text()
    with urllib.request.urlopen(server.metrics_url, timeout=10) as page:
        assert b'nv_inference_request_success{model="sleeper"' in page.read()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def test_a_new_server_that_does_not_get_ready_leaves_the_old_one_serving(serve, repository):
    server = serve(repository)
    (repository / "sleeper" / "1" / "model.py").write_text(LACKS_A_MODULE)
    server.process.send_signal(signal.SIGUSR1)
    said = "the new server did not get ready, so the one at hand serves on"
    assert says(server, said)
    assert sleep(server, 0.0) == [0.0]
    assert server.server_pid in processes.tree(server.supervisor_pid)


def test_where_two_servers_are_not_wanted_the_old_one_ends_first(serve, repository):
    server = serve(repository, "--changeover=stop-first")
    server.process.send_signal(signal.SIGUSR1)
    assert says(server, "the new server serves")
    assert "the old one ends first" in server.console.read_text()
    assert sleep(server, 0.0) == [0.0]


def test_a_standby_takes_over_from_a_server_that_dies(serve, repository):
    server = serve(repository, "--standby")
    assert says(server, "a second server is ready")
    second = server.log.parent / "tritonserver.2.log"
    assert [sleep(server, 0.0) for _ in range(4)] == [[0.0]] * 4
    assert "sleeper" not in second.read_text().partition("Started HTTPService")[2]
    os.kill(server.server_pid, signal.SIGKILL)
    assert says(server, "the new server serves")
    assert sleep(server, 0.0) == [0.0]
