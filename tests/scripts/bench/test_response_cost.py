"""What a response costs each process is what the kernel counted in it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from engines.worker import process_tree
from scripts.bench import response_cost
from scripts.bench.response_cost import Cost
from scripts.bench.rounds import Round
from scripts.bench.stream_load import Stream
from tests.waiting import eventually

ROUTER_PROCESS = """
import threading, time
def work():
    while time.thread_time() < 0.5: pass
    for _ in range(50): time.sleep(0.001)
worker = threading.Thread(target=work)
worker.start()
worker.join()
threading.Thread(target=input).start()
print(flush=True)
"""


@pytest.fixture
def router_process(tmp_path):
    """A process like those of the router: one of its threads has computed for half a second, and waited 50 times."""
    program = tmp_path / "llm_router" / "1" / "model.py"
    program.parent.mkdir(parents=True)
    program.write_text(ROUTER_PROCESS)
    command = ["triton_python_backend_stub", str(program)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, executable=sys.executable, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_the_main_thread_and_the_others_are_told_apart_though_these_have_ended(router_process):
    found = response_cost.so_far(router_process.pid)
    assert set(found) == {"llm_router, main thread", "llm_router, other threads"}
    main, others = found["llm_router, main thread"], found["llm_router, other threads"]
    assert others.user + others.system >= 450_000 > main.user + main.system > 0


def test_each_wait_of_a_thread_is_a_wake_up():
    code = "import time; [time.sleep(0.001) for _ in range(50)]; print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        [cost] = response_cost.so_far(process.pid).values()
        assert cost.wake_ups >= 50


def test_a_process_that_is_gone_cost_nothing():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert set(response_cost.so_far(gone.pid).values()) <= {Cost()}


def test_a_rounds_cost_is_what_was_added_and_the_engines_own_is_no_overhead():
    before = {"llm_router, main thread": Cost(1, 2, 3), "engine": Cost(5, 5, 5)}
    after = {
        "llm_router, main thread": Cost(41, 12, 4),
        "engine": Cost(1005, 5, 6),
        "llm_router, other threads": Cost(9),
    }
    found = Round([Stream(0.0, [1.0, 2.0], [1, 3])], response_cost.between(before, after))
    assert found.costs["llm_router, main thread"] == Cost(40, 10, 1)
    assert found.cpu_us == {"llm_router": 59, "engine": 1000}
    assert (found.responses, found.cpu_us_per_token) == (2, 59 / 4)


def test_the_table_begins_with_the_dearest_and_leaves_out_what_costs_nothing():
    rounds = [{"a": Cost(number, 1, 1), "b": Cost(50, 10, 2), "c": Cost()} for number in (10, 20, 90)]
    lines = response_cost.table("32 streams", response_cost.medians(rounds)).split("\n")
    assert [line.split() for line in lines[2:]] == [["b", "50", "10", "2.00"], ["a", "20", "1", "1.00"]]


def test_samples_are_shared_out_by_library():
    report = "60 \t/usr/lib/libpython3.11.so.1.0\n30 \t[kernel.kallsyms]\n\n10\t[vdso]\n"
    assert response_cost.shares(report) == {"libpython3.11.so.1.0": 0.6, "kernel": 0.4}
    assert response_cost.shares("") == {}
    told = response_cost.library_table({"a.so": 0.995, "b.so": 0.005})
    assert told == "\nthe router's processes by library: a.so 100%"
    assert "no perf" in response_cost.library_table({})


@pytest.mark.skipif(not shutil.which("perf"), reason="no perf on this machine")
def test_perf_finds_the_library_in_which_a_process_works():
    def has_worked():
        return (process_tree.cpu_seconds(busy.pid) or 0) > 0.5

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            found = response_cost.by_library([busy.pid], lambda: eventually(has_worked))
        finally:
            busy.kill()
    if not found:
        pytest.skip("perf may not look at processes here")
    assert "python" in next(iter(found)) and sum(found.values()) == pytest.approx(1)


def test_where_there_is_no_perf_nothing_is_told(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert response_cost.by_library([1], lambda: None) == {}
