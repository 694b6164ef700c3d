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

from scripts.host import processes, shared_memory
from scripts.server.model_control import ControlFailed
from tests.server import sleeper
from tests.server.serving import ROOT, Server, launched
from tests.server.sleeper import begun, request_body, sleep
from tests.waiting import eventually

pytestmark = pytest.mark.server

LOADS_FOR_A_MINUTE = """
from pathlib import Path

Path(__file__).with_name("loading").touch()
time.sleep(60)
"""
LACKS_A_MODULE = "import a_module_that_is_missing\n"


def add_model(repository: Path, name: str, code: str = sleeper.CODE) -> Path:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(sleeper.config(name, instances=2))
    (repository / name / "1" / "model.py").write_text(code)
    return repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return add_model(tmp_path / "models", "sleeper")


def living(group: int) -> list[str]:
    """The processes of a group that still run; the dead that nobody has waited for don't count."""
    found = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 2) for line in found.splitlines())
    return [args for pgid, state, args in rows if int(pgid) == group and state[0] != "Z"]


def shared_memory_of(supervisor_pid: int) -> list[str]:
    return [path.name for path in shared_memory.FOLDER.glob(f"{shared_memory.PREFIX}{supervisor_pid}_*")]


def leaves_nothing(server: Server) -> bool:
    return eventually(lambda: not living(server.server_pid)) and shared_memory_of(server.supervisor_pid) == []


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


def test_a_server_that_dies_is_noticed_and_cleaned_up_after(serve, repository):
    server = serve(repository)
    os.kill(server.server_pid, signal.SIGKILL)
    assert server.wait(20) == 4
    assert "tritonserver died: killed by SIGKILL" in server.console.read_text()
    assert leaves_nothing(server)


def stubs(server: Server, model: str = "sleeper") -> list[int]:
    return [pid for pid in processes.tree(server.server_pid) if processes.stub_model(pid) == model]


def repaired(server: Server, model: str) -> None:
    """Ends a process of the model and waits for the repair, before which all models are looked at twice."""
    os.kill(stubs(server, model)[0], signal.SIGKILL)
    assert eventually(lambda: f"model {model} is back" in server.console.read_text(), 60)


def test_a_model_whose_process_died_is_loaded_again_while_the_server_stays(serve, repository):
    server = serve(repository)
    killed, survivor = stubs(server)
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: "model sleeper is back" in server.console.read_text(), 60)
    assert len(stubs(server)) == 2
    assert not {killed, survivor} & set(stubs(server))
    assert [sleep(server, 0.0) for _ in range(4)] == [[0.0]] * 4  # by both of them
    assert server.console.read_text().count("model sleeper: a process died; loading it again") == 1
    assert server.process.poll() is None
    assert server.server_pid in processes.tree(server.supervisor_pid)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert leaves_nothing(server)


def test_a_model_that_cannot_be_loaded_again_ends_the_server(serve, repository):
    server = serve(repository)
    (repository / "sleeper" / "1" / "model.py").write_text(LACKS_A_MODULE)
    os.kill(stubs(server)[0], signal.SIGKILL)
    assert server.wait(90) == 4
    said = server.console.read_text()
    assert "model sleeper is not back, attempt 3 of 3: " in said
    assert "error: model sleeper lost a process and cannot be loaded again" in said
    assert leaves_nothing(server)


def test_a_process_that_died_over_a_request_ends_the_server_if_its_model_cannot_be_unloaded(serve, repository):
    server = serve(repository, "--exit-timeout-secs=1")
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(sleep, server, 3.0) for _ in range(2)]
        assert eventually(lambda: begun(repository) == 2)
        os.kill(stubs(server)[0], signal.SIGKILL)
        assert sorted(answer.exception() is None for answer in answers) == [False, True]
    # Versions of tritonserver differ in whether the unload ends; either way somebody serves again.
    back = "model sleeper is back"
    assert eventually(lambda: server.process.poll() is not None or back in server.console.read_text(), 60)
    if server.process.poll() is not None:
        assert server.wait() == 4
        assert "model sleeper cannot be unloaded within 20 s" in server.console.read_text()
        assert leaves_nothing(server)


def test_a_signal_during_a_repair_stops_the_server(serve, repository):
    server = serve(repository)
    (repository / "sleeper" / "1" / "model.py").write_text(LOADS_FOR_A_MINUTE)
    os.kill(stubs(server)[0], signal.SIGKILL)
    assert eventually((repository / "sleeper" / "1" / "loading").exists, 60)
    server.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: "stopping" in server.console.read_text())
    server.process.send_signal(signal.SIGTERM)
    assert server.wait(20) == 6
    assert "is not back" not in server.console.read_text()
    assert leaves_nothing(server)


def test_an_operator_may_unload_and_load_a_model_with_another_count(serve, repository):
    for witness in ("witness_1", "witness_2"):
        add_model(repository, witness)
    server = serve(repository)
    control = server.control
    control.unload("sleeper", 30)
    assert eventually(lambda: set(control.states()["sleeper"]) == {"UNAVAILABLE"})
    config = repository / "sleeper" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 2", "count: 1"))
    repaired(server, "witness_1")  # so the model without processes was looked at
    control.load("sleeper", 60)
    repaired(server, "witness_2")  # and the one with fewer
    assert "sleeper: a process died" not in server.console.read_text()
    assert len(stubs(server)) == 1


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
        ("--rate-limiter=on", "unrecognized option '--rate-limiter=on'"),
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
