"""A process of the real models is killed while requests come: who notices, and until when."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bls.contract import SMALL
from scripts.host import processes
from scripts.server import model_folders
from scripts.server.drain import in_flight
from tests.faults import victims
from tests.faults.load import Load
from tests.server.serving import ROOT, Server, running_server
from tests.server.supervised import says
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]

WHOLE = "model llm_router is whole again"
CHANGES_OVER, SERVES, OLD_ENDED = "changing over to a new server", "the new server serves", "the old server has ended"
ROUTERS = model_folders.instances((ROOT / "model_repository/llm_router/config.pbtxt").read_text())
BUSY = "retry after"
DEAD = "is not healthy"  # what a request hears that met the dead process itself


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("faults")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_process_is_about_to_end(server: Server) -> None:
    """Those that a repair replaced end later, a second each: none of them is to be taken for one that serves. Where too
    many did not end, another server has followed."""
    assert eventually(lambda: times_said(server, CHANGES_OVER) == times_said(server, OLD_ENDED), 240)
    assert eventually(lambda: len(victims.stubs(server, "llm_router")) == ROUTERS, 120)


def ask(server: Server) -> str:
    """ "" once answered, or the error."""
    body = json.dumps({"text_input": "What is the capital of France?", "max_tokens": 4}).encode()
    try:
        with urllib.request.urlopen(f"{server.http_url}/v2/models/llm_router/generate", body, timeout=120) as answer:
            answer.read()
            return ""
    except urllib.error.HTTPError as error:
        return error.read().decode()


def metrics(server: Server) -> str:
    with urllib.request.urlopen(server.metrics_url, timeout=30) as page:
        return str(page.read().decode())


def times_said(server: Server, text: str) -> int:
    return server.console.read_text().count(text)


def asked_until(server: Server, said: str) -> list[str]:
    """What requests got, two a second, from now until scripts/serve has said that."""
    answers: list[Future[str]] = []
    with ThreadPoolExecutor(32) as pool:
        while said not in server.console.read_text():
            answers.append(pool.submit(ask, server))
            time.sleep(0.5)
        answers += [pool.submit(ask, server) for _ in range(4)]
    return [answer.result() for answer in answers]


@pytest.mark.parametrize("model", ["preprocessing", "postprocessing", "text_classifier_onnx", "text_tokenizer"])
def test_no_request_is_lost_when_a_process_dies_that_the_router_calls(server, model):
    os.kill(victims.stubs(server, model)[-1], signal.SIGKILL)
    lost = [answer for answer in asked_until(server, f"model {model} is whole again") if answer]
    assert [answer for answer in lost if BUSY not in answer] == []  # A call that waited a second for it counts as load.
    assert server.server_pid in processes.tree(server.supervisor_pid)


def test_a_server_that_is_stopped_by_a_signal_goes_on(server):
    os.kill(victims.tritonserver(server), signal.SIGSTOP)
    assert says(server, "it is told to go on")
    assert ask(server) == ""


def test_an_idle_router_process_that_dies_costs_at_most_the_requests_that_meet_it(server):
    os.kill(victims.stubs(server, "llm_router")[-1], signal.SIGKILL)
    lost = [answer for answer in asked_until(server, WHOLE) if answer]
    assert [answer for answer in lost if DEAD not in answer and BUSY not in answer] == []
    assert ask(server) == ""


def test_a_router_process_that_dies_in_mid_stream_takes_no_other_stream_with_it(server):
    with Load(server, rate=0) as load:
        victim = victims.streaming(victims.stubs(server, "llm_router"))
        before = times_said(server, WHOLE)
        load.fault("router process killed in mid-stream")
        os.kill(victim, signal.SIGKILL)
        assert eventually(lambda: times_said(server, WHOLE) > before, 240)
        report = load.watch(5)
    assert eventually(lambda: in_flight(metrics(server)) == 0, 60)  # else a drain would wait for it
    own = [outcome for outcome in report.outcomes if outcome.is_lost and DEAD not in outcome.detail]
    assert len(own) <= 1 and report.hung == 0
    assert server.server_pid in processes.tree(server.supervisor_pid)


def test_the_streams_of_an_engine_process_that_dies_end_and_it_comes_back(server):
    with Load(server, rate=0) as load:
        load.fault("process of the small engine's model killed")
        os.kill(victims.stubs(server, SMALL)[-1], signal.SIGKILL)
        assert says(server, "model llm_router is loaded anew", 240)
        report = load.watch(5)
    assert report.hung == 0
    assert ask(server) == ""


def test_a_server_that_is_aborted_is_followed_by_another(server):
    before = times_said(server, SERVES)
    os.kill(victims.tritonserver(server), signal.SIGABRT)
    assert eventually(lambda: times_said(server, SERVES) > before, 240)
    assert eventually(lambda: ask(server) == "", 30)
