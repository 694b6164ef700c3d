"""A gateway of several processes: a key has one limit, a counter one sum, and what a process loses is given back."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import pytest

from gateway.accounts import SharedAccounts
from gateway.keys import Key, new_key
from gateway.limits import Limits
from gateway.shared import Pages
from scripts.host import processes
from scripts.server import gateway_process
from tests.gateway.gateway_process import events_of, opened, running
from tests.server.echo_repository import ENDLESS
from tests.waiting import eventually

SECRET, DIGEST = new_key()
HEADERS = {"x-api-key": SECRET}
LONG = {"model": "auto", "prompt": "one two", "stream": True, "max_tokens": 8000, "seed": ENDLESS * 1000 + 20}


@pytest.fixture
def two(tmp_path, fake):
    file = tmp_path / "keys.txt"
    file.write_text(f"alice {DIGEST} concurrency=4 monthly_tokens=1000000\n")
    with running(tmp_path, fake.target, "--workers=2", f"--keys={file}", "--open-metrics") as gateway:
        assert eventually(lambda: len(workers_of(gateway)) == 2)
        yield gateway


def workers_of(gateway):
    return [pid for pid in processes.tree(gateway.process.pid) if pid != gateway.process.pid]


def complete(gateway):
    return gateway.post("/v1/completions", {"model": "auto", "prompt": "one two"}, x_api_key=SECRET)


def of_completions(gateway, name):
    labels = {"path": "/v1/completions", "status": "200"} if name.endswith("requests_total") else {"key": "alice"}
    return gateway.metric(name, **labels)


def test_accounts_are_kept_as_they_were_for_all_workers():
    now = [100.0]
    accounts = SharedAccounts()
    limits, key = Limits(accounts, lambda: now[0]), Key("a", rpm=60, tpm=1000, concurrency=3)
    admission = limits.admit(key, 2, 400)
    limits.spend("a", 7, 0.5)
    accounts.worker = 1
    with limits.account(key) as account:
        assert (account.running, account.elsewhere) == (0, 2)
        assert (account.requests.level, account.tokens.level) == (58, 600)
        assert (account.spent.tokens, account.spent.cost) == (7, 0.5)
    accounts.worker = 0
    admission.settle(100)
    with limits.account(key) as account:
        assert (account.running, account.tokens.level) == (0, 900)
    with accounts.of("b") as other:
        assert other.requests is None and other.spent.tokens == 0


def test_the_answers_of_a_worker_that_is_gone_are_forgotten():
    accounts = SharedAccounts()
    for worker in (3, 5):
        accounts.worker = worker
        with accounts.of("a") as account:
            account.running = 2
    accounts.forget(3)
    with accounts.of("a") as account:
        assert (account.running, account.elsewhere) == (2, 0)


def test_a_page_that_does_not_fit_leaves_the_last_one():
    pages = Pages(3)
    pages.put(1, b"first")
    pages.put(1, b"x" * (2 << 20))
    assert (pages.get(1), pages.get(0), pages.others(0), pages.others(1)) == (b"first", b"", [b"first"], [])


def test_scripts_serve_knows_how_many_there_may_be():
    from gateway.accounts import MAX_WORKERS

    assert gateway_process.MAX_WORKERS == MAX_WORKERS


def test_a_keys_limit_is_one_for_all_workers_and_counters_are_summed(two):
    for _ in range(12):
        assert complete(two).status == 200
    for name, value in (("requests_total", 12), ("completion_tokens_total", 24)):
        assert eventually(lambda name=f"llm_gateway_{name}", value=value: of_completions(two, name) == value)
    with ExitStack() as stack:
        for _ in range(4):
            assert stack.enter_context(opened(two.port, "/v1/completions", LONG, HEADERS)).readline()
        assert eventually(lambda: two.metric("llm_gateway_in_flight") == two.metric("llm_gateway_streams") == 4)
        assert [complete(two).status for _ in range(8)] == [429] * 8
    assert eventually(lambda: complete(two).status == 200)


def test_a_worker_that_dies_is_started_again_and_its_answers_are_given_back(two):
    for _ in range(8):
        complete(two)
    assert eventually(lambda: of_completions(two, "llm_gateway_requests_total") == 8)
    with ExitStack() as stack:
        for _ in range(4):
            assert stack.enter_context(opened(two.port, "/v1/completions", LONG, HEADERS)).readline()
        before = workers_of(two)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: len(set(workers_of(two)) - set(before)) == 2)
        assert "ended with status -9; it is started again" in two.log
        assert eventually(lambda: complete(two).status == 200)
    assert eventually(lambda: of_completions(two, "llm_gateway_requests_total") >= 8)
    assert eventually(two.is_idle)


def test_told_to_end_all_of_them_send_what_runs(two):
    with ExitStack() as stack:
        body = {**LONG, "max_tokens": 60}
        streams = [stack.enter_context(opened(two.port, "/v1/completions", body, HEADERS)) for _ in range(4)]
        for stream in streams:
            stream.readline()
        two.process.send_signal(signal.SIGTERM)
        for stream in streams:
            assert events_of(stream.read().decode())[-1] == "[DONE]"
    assert two.process.wait(60) == 0


def test_workers_do_not_outlive_the_one_that_minds_them(two):
    pids = workers_of(two)
    two.process.kill()
    assert eventually(lambda: not [pid for pid in pids if processes.is_alive(pid)])
