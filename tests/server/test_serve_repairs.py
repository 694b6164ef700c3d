"""A process of a model dies: what scripts/serve does about it, on the real tritonserver."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.host import processes
from tests.server.serving import Server
from tests.server.sleeper import begun, sleep
from tests.server.supervised import LACKS_A_MODULE, LOADS_FOR_A_MINUTE, add_model, leaves_nothing, says, stubs
from tests.waiting import eventually

pytestmark = pytest.mark.server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return add_model(tmp_path / "models", "sleeper")


def test_a_model_whose_process_died_is_loaded_anew_while_it_serves(serve, repository):
    server = serve(repository)
    killed, survivor = stubs(server)
    with ThreadPoolExecutor() as pool:
        os.kill(killed, signal.SIGKILL)
        assert says(server, "model sleeper is whole again")
        long = pool.submit(sleep, server, 1.0)
        assert [sleep(server, 0.0) for _ in range(4)] == [[0.0]] * 4  # by both of them
        assert long.result() == [1.0]
    assert eventually(lambda: len(stubs(server)) == 2)
    assert not {killed, survivor} & set(stubs(server))
    said = "model sleeper: a process died; it is replaced while the others serve"
    assert server.console.read_text().count(said) == 1
    assert server.server_pid in processes.tree(server.supervisor_pid)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert leaves_nothing(server)


def test_from_its_second_death_on_a_model_has_only_the_process_replaced_that_died(serve, repository):
    server = serve(repository)
    repaired(server, "sleeper")
    assert eventually(lambda: len(stubs(server)) == 2)
    for times in (2, 3):
        killed, survivor = stubs(server)
        os.kill(killed, signal.SIGKILL)
        assert eventually(lambda times=times: server.console.read_text().count("sleeper is whole again") == times)
        assert survivor in stubs(server) and len(stubs(server)) == 2
    # Last, since a request changes a file of this model, which then is loaded as a whole.
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda _: sleep(server, 1.0), range(2))) == [[1.0]] * 2  # by both of them


def test_a_model_that_cannot_be_loaded_anew_does_not_end_the_server(serve, repository):
    server = serve(repository)
    (repository / "sleeper" / "1" / "model.py").write_text(LACKS_A_MODULE)
    killed, survivor = stubs(server)
    os.kill(killed, signal.SIGKILL)
    assert says(server, "model sleeper serves on without it")
    assert "could not be loaded anew, attempt 3 of 3: " in server.console.read_text()
    assert server.process.poll() is None
    assert stubs(server) == [survivor]


def test_a_process_that_died_over_a_request_is_replaced(serve, repository):
    server = serve(repository)
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(sleep, server, 3.0) for _ in range(2)]
        assert eventually(lambda: begun(repository) == 2)
        os.kill(stubs(server)[0], signal.SIGKILL)
        assert sorted(answer.exception() is None for answer in answers) == [False, True]
    assert says(server, "model sleeper is whole again")
    assert [sleep(server, 0.0) for _ in range(4)] == [[0.0]] * 4
    assert server.process.poll() is None


def test_a_signal_during_a_repair_stops_the_server(serve, repository):
    server = serve(repository)
    (repository / "sleeper" / "1" / "model.py").write_text(LOADS_FOR_A_MINUTE)
    os.kill(stubs(server)[0], signal.SIGKILL)
    assert eventually((repository / "sleeper" / "1" / "loading").exists, 60)
    server.process.send_signal(signal.SIGTERM)
    assert says(server, "stopping")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait(20) == 6
    assert "could not be loaded" not in server.console.read_text()
    assert leaves_nothing(server)


def repaired(server: Server, model: str) -> None:
    """Ends a process of the model and waits for the repair, before which all models are looked at twice."""
    os.kill(stubs(server, model)[0], signal.SIGKILL)
    assert says(server, f"model {model} is whole again")


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
