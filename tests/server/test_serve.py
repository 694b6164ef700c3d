"""scripts/serve against the real tritonserver: what it leaves behind, and what it says, in each way to end."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from scripts.server.model_control import ControlFailed
from tests.server.serving import ROOT, launched, running_server
from tests.server.sleeper import begun, request_body, sleep
from tests.server.supervised import (
    LACKS_A_MODULE,
    LOADS_FOR_A_MINUTE,
    add_model,
    leaves_nothing,
    living,
    shared_memory_of,
)
from tests.waiting import eventually

pytestmark = pytest.mark.server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return add_model(tmp_path / "models", "sleeper")


def test_serves_a_folder_of_models_and_leaves_nothing_behind(serve, repository):
    server = serve(repository)
    assert sleep(server, 0.25) == [0.25]
    assert shared_memory_of(server.supervisor_pid) != []
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert leaves_nothing(server)


def test_a_request_in_flight_is_answered_before_the_server_stops(serve, repository):
    server = serve(repository)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(sleep, server, 8.0)  # longer than a connection must be quiet to count as idle
        assert eventually(lambda: begun(repository) == 1)
        server.process.send_signal(signal.SIGTERM)
        assert answer.result() == [8.0]
    assert server.wait() == 0
    assert leaves_nothing(server)


def test_an_idle_connection_does_not_hold_up_the_stop(serve, repository):
    server = serve(repository)
    with closing(http.client.HTTPConnection(server.http_url.removeprefix("http://"))) as idle:
        idle.request("POST", "/v2/models/sleeper/infer", request_body(0.1))
        assert idle.getresponse().read()
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0
    assert leaves_nothing(server)


def test_a_second_signal_stops_at_once_and_still_cleans_up(serve, repository):
    server = serve(repository)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(sleep, server, 40.0)
        assert eventually(lambda: begun(repository) == 1)
        server.process.send_signal(signal.SIGINT)
        assert eventually(lambda: "stopping" in server.console.read_text())
        server.process.send_signal(signal.SIGINT)
        assert server.wait(20) == 6
        with pytest.raises(ConnectionError):
            answer.result()
    assert leaves_nothing(server)


def test_requests_longer_than_the_drain_are_cut_off_and_the_exit_status_says_so(serve, repository):
    server = serve(repository, "--exit-timeout-secs=1")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(sleep, server, 40.0)
        assert eventually(lambda: begun(repository) == 1)
        server.process.send_signal(signal.SIGINT)
        assert server.wait(30) == 6
        with pytest.raises(ConnectionError):
            answer.result()
    assert leaves_nothing(server)


def test_nothing_outlives_a_supervisor_that_was_killed(serve, repository):
    server = serve(repository)
    os.kill(server.supervisor_pid, signal.SIGKILL)
    server.wait(20)
    assert eventually(lambda: not living(server.server_pid), 30)
    assert shared_memory_of(server.supervisor_pid) == []


def test_a_model_that_fails_to_load_is_named_with_the_reason(tmp_path, repository):
    add_model(repository, "broken", LACKS_A_MODULE)
    with launched(tmp_path, repository) as launch:
        assert launch.wait() == 3
    said = launch.console.read_text()
    assert "error: model broken failed to load: ModuleNotFoundError: No module named 'a_module_that_is_missing'" in said
    assert shared_memory_of(launch.process.pid) == []


def test_a_config_that_cannot_be_read_is_named_with_the_place(tmp_path, repository):
    (add_model(repository, "typo") / "typo" / "config.pbtxt").write_text('nme: "typo"\n')
    with launched(tmp_path, repository) as launch:
        assert launch.wait() == 3
    assert "error: model typo failed to load: failed to read text proto" in launch.console.read_text()
    assert 'has no field named "nme"' in launch.console.read_text()


def test_a_signal_while_models_load_stops_at_once(tmp_path):
    with launched(tmp_path, add_model(tmp_path / "models", "slow", LOADS_FOR_A_MINUTE)) as launch:
        assert eventually(lambda: "waiting for slow" in launch.console.read_text(), 60)
        assert eventually(lambda: shared_memory_of(launch.process.pid) != [])
        launch.process.send_signal(signal.SIGTERM)
        assert launch.wait(20) == 0
    assert shared_memory_of(launch.process.pid) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_log_that_cannot_be_written_keeps_nobody_waiting(tmp_path, repository):
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
    try:
        (full / "filler").write_bytes(b"x" * 61440)
        with running_server(tmp_path, repository, f"--log={full / 'server.log'}") as server:
            assert sleep(server, 0.0) == [0.0]
            assert "warning: the disk is full, so the log can't be written" in server.console.read_text()
    finally:
        subprocess.run(["umount", "-l", full], check=True)


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path, repository):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with launched(tmp_path, repository, f"--grpc-port={port}") as launch:
            assert launch.wait() == 2
    assert launch.console.read_text() == f"error: port {port} is taken: choose another one with --grpc-port\n"


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--rate-limit=on", "--rate-limit: invalid argument for --rate-limit"),
        ("--rate-limits=on", "unrecognized option '--rate-limits=on'"),
    ],
)
def test_what_tritonserver_refuses_is_said_in_its_own_words(tmp_path, repository, flag, said):
    with launched(tmp_path, repository, flag) as launch:
        assert launch.wait() == 3
    assert f"error: tritonserver ended while loading, exit status 1: {said}\n" in launch.console.read_text()


def test_other_flags_reach_tritonserver(serve, repository):
    server = serve(add_model(repository, "unwanted", LACKS_A_MODULE), "--load-model", "sleeper", "--log-verbose=1")
    assert sleep(server, 0.0) == [0.0]
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{server.http_url}/v2/models/unwanted/ready", timeout=10)


def test_where_failed_models_are_tolerated_they_are_named_once_and_the_others_served(serve, repository):
    server = serve(add_model(repository, "broken", LACKS_A_MODULE), "--exit-on-error=false")
    assert sleep(server, 0.0) == [0.0]
    said = server.console.read_text()
    assert said.count("error: model broken failed to load: ModuleNotFoundError") == 1
    assert "1 of 2 models ready" in said


def test_without_model_control_every_model_is_served_and_stays(serve, repository):
    server = serve(repository, "--model-control-mode=none", "--rate-limit=execution_count")
    assert sleep(server, 0.0) == [0.0]
    with pytest.raises(ControlFailed, match="not allowed"):
        server.control.unload("sleeper", 10)


def test_serving_on_a_gpu_is_refused_in_one_line_where_there_is_none():
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    found = subprocess.run([ROOT / "scripts" / "serve", "gpu"], env=env, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)


def test_every_model_of_the_repository_is_ready(server):
    models = [path.parent.name for path in (ROOT / "model_repository").glob("*/config.pbtxt")]
    assert models
    for model in models:
        with urllib.request.urlopen(f"{server.http_url}/v2/models/{model}/ready", timeout=10) as response:
            assert response.status == 200
