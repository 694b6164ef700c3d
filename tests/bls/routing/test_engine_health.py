"""The state that router processes share, with several real processes on one table; their clocks are the test's."""

import contextlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from bls.routing import shared_table, table_layout
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.shared_table import SharedTable
from tests.engine_health_process import Process

SETTINGS = load_policy(SHIPPED).settings
WINDOW, COOL_DOWN = SETTINGS.breaker_window_seconds, SETTINGS.cool_down_seconds


class Remote:
    """A Process of tests/engine_health_process.py in a real process of its own: its methods by name."""

    def __init__(self, path):
        command = [sys.executable, "-m", "tests.engine_health_process", str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True, bufsize=1
        )

    def __getattr__(self, name):
        def call(*arguments):
            self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
            return json.loads(self.process.stdout.readline())

        return call

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table"


@contextlib.contextmanager
def remotes(path, count):
    started = [Remote(path) for _ in range(count)]
    try:
        yield started
    finally:
        for remote in started:
            if remote.process.returncode is None:
                remote.close()


# The table


def test_each_view_has_a_row_of_its_own_and_the_models_the_same_slots(path):
    first, second = SharedTable(path), SharedTable(path)
    assert first.row != second.row
    assert [first.slot("a"), second.slot("b"), second.slot("a"), first.slot("b")] == [0, 1, 0, 1]
    first.look()
    assert sorted(first.alive.tolist()) == sorted([first.row, second.row])
    second.close()
    first.look()
    assert first.alive.tolist() == [first.row]
    assert SharedTable(path).row == 1


def test_threads_that_name_models_at_once_get_slots_of_their_own(path):
    for _ in range(20):
        path.unlink(missing_ok=True)
        table = SharedTable(path)
        with ThreadPoolExecutor(4) as pool:
            slots = list(pool.map(table.slot, ["a", "b", "c", "d"]))
        assert sorted(slots) == [0, 1, 2, 3]
        assert [SharedTable(path).slot(name) for name in "abcd"] == slots


def test_a_ninth_model_and_a_row_too_many_are_errors(path, monkeypatch):
    table = SharedTable(path)
    for number in range(table_layout.MODELS):
        table.slot(str(number))
    with pytest.raises(OSError, match="no room for a further model"):
        table.slot("one more")
    monkeypatch.setattr(shared_table, "ROWS", 1)
    with pytest.raises(OSError, match="all 1 rows are taken"):
        SharedTable(path)


def test_a_file_of_another_version_is_refused_and_one_cut_short_made_anew(path):
    path.write_bytes(b"x" * table_layout.SIZE)
    with pytest.raises(OSError, match="not a table of this version"):
        SharedTable(path)
    path.write_bytes(b"x")
    assert SharedTable(path).read_text() == b""


def test_the_text_is_read_as_it_was_written_or_not_at_all(path):
    with remotes(path, 4) as processes:
        texts = [str(number) * 1000 for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(lambda pair: [pair[0].append(pair[1]) for _ in range(10)], zip(processes, texts, strict=True))
            )
    text = SharedTable(path).read_text().decode()
    pieces = [text[at : at + 1000] for at in range(0, len(text), 1000)]
    assert sorted(pieces) == sorted(texts * 10)
    with pytest.raises(ValueError, match="more than the table holds"):
        SharedTable(path).write_text(lambda before: bytes(1 << 20))


# Counts


def test_what_processes_count_adds_up(path):
    with remotes(path, 4) as processes:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda process: process.busy(200), processes)) == [200] * 4
        state = processes[0].state()
        assert state[SMALL]["in_flight"] == 0
        table = SharedTable(path)
        table.look()
        assert table.buckets[table.alive, table.slot(SMALL), :, table_layout.SUCCESSES].sum() == 800


def test_a_killed_process_counts_no_more_and_its_row_is_taken_again(path):
    with remotes(path, 3) as processes:
        for process in processes:
            process.begin(LARGE)
        assert processes[0].state()[LARGE]["in_flight"] == 3
        processes[1].kill()
        assert processes[0].state()[LARGE]["in_flight"] == 2
        with remotes(path, 1) as (newcomer,):
            assert newcomer.state()[LARGE]["in_flight"] == 2
            newcomer.begin(LARGE)
            assert processes[2].state()[LARGE]["in_flight"] == 3


def test_processes_take_each_others_word_for_who_lives_and_ask_the_kernel_again_after_half_a_second(path, monkeypatch):
    tables = [SharedTable(path) for _ in range(3)]
    tables[0].look()
    late = SharedTable(path)
    gone = tables.pop()
    gone.close()
    for table in (*tables, late):
        table.look_lately()
    assert [row in tables[1].alive for row in (tables[0].row, tables[1].row, gone.row)] == [True] * 3
    assert late.row in late.alive, "though nobody has looked since it came"
    monkeypatch.setattr(shared_table, "LATELY_SECONDS", 0.0)
    for table in (*tables, late):
        table.look_lately()
        assert table.alive.tolist() == sorted([*(each.row for each in tables), late.row])


def test_rates_and_times_are_those_of_the_window(path):
    process = Process(path)
    for now, outcome in ((10, "failed"), (50, "worked"), (51, "worked"), (52, "failed"), (53, "failed")):
        process.at(now)
        number = process.begin(SMALL)
        process.at(now + 0.5)
        process.end(number, outcome)
    small = process.state()[SMALL]
    assert (small["error_rate"], small["first_token_seconds"]) == (0.5, 0.5)
    process.at(53 + WINDOW + 4)
    small = process.state()[SMALL]
    assert (small["error_rate"], small["first_token_seconds"]) == (0.0, None)


def test_what_is_not_loaded_is_known_for_a_second_and_opens_no_breaker(path):
    first, second = Process(path), Process(path)
    first.at(100)
    second.at(100.5)
    for _ in range(20):
        assert first.try_once(SMALL, "not_loaded")
    assert not second.state()[SMALL]["ready"]
    second.at(101)
    assert second.state()[SMALL]["ready"]
    first.try_once(SMALL, "not_loaded")
    second.try_once(SMALL, "worked")
    assert first.state()[SMALL]["ready"]


def test_a_state_that_nobody_refreshes_is_refreshed_by_who_asks(path):
    now = [0.0]
    health = EngineHealth(SharedTable(path), lambda: now[0])
    assert health.state(SETTINGS)[SMALL].error_rate == 0.0
    health.begin(SMALL, SETTINGS).failed()
    now[0] = 2.5
    assert health.state(SETTINGS)[SMALL].error_rate == 1.0


# The breaker


def test_a_breaker_opens_for_all_at_failures_of_any_and_one_probe_closes_it(path):
    with remotes(path, 3) as processes:
        for process in processes:
            process.at(100)
        for number in range(SETTINGS.breaker_failures):
            assert not processes[0].state()[SMALL]["cooling_down"]
            assert processes[number % 3].try_once(SMALL, "failed")
        for process in processes:
            assert process.state()[SMALL]["cooling_down"]
            assert not process.try_once(SMALL, "worked")
            assert process.try_once(LARGE, "worked")
            process.at(100 + COOL_DOWN)
        probe = processes[0].begin(SMALL)
        assert probe is not None
        assert [process.begin(SMALL) for process in processes[1:]] == [None, None]
        assert processes[1].state()[SMALL]["cooling_down"]
        processes[0].end(probe, "worked")
        assert all(process.try_once(SMALL, "worked") for process in processes)


def test_a_failed_probe_opens_it_anew_and_one_that_tells_nothing_leaves_the_next(path):
    process = Process(path)
    process.at(100)
    for _ in range(SETTINGS.breaker_failures):
        process.try_once(SMALL, "failed")
    process.at(100 + COOL_DOWN)
    assert process.try_once(SMALL, "failed")
    assert not process.try_once(SMALL, "worked")
    process.at(100 + 2 * COOL_DOWN)
    assert process.try_once(SMALL, None)
    assert process.try_once(SMALL, "worked")
    # Closed: what failed before counts no more, what fails now does at once.
    for _ in range(SETTINGS.breaker_failures):
        assert process.try_once(SMALL, "failed")
    assert not process.try_once(SMALL, "worked")


def test_the_probe_of_a_killed_process_passes_to_the_next(path):
    with remotes(path, 2) as (first, second):
        for process in (first, second):
            process.at(100)
        for _ in range(SETTINGS.breaker_failures):
            first.try_once(SMALL, "failed")
        for process in (first, second):
            process.at(100 + COOL_DOWN)
        assert first.begin(SMALL) is not None
        assert second.begin(SMALL) is None
        first.kill()
        assert second.begin(SMALL) is not None


def test_failures_further_apart_than_the_window_open_nothing(path):
    process = Process(path)
    for number in range(3 * SETTINGS.breaker_failures):
        process.at(100 + number * WINDOW / (SETTINGS.breaker_failures - 2))
        assert process.try_once(SMALL, "failed")


def test_failures_among_many_successes_open_nothing(path):
    process = Process(path)
    process.at(100)
    for _ in range(10 * SETTINGS.breaker_failures):
        assert process.try_once(SMALL, "failed")
        assert process.try_once(SMALL, "worked")
        assert process.try_once(SMALL, "worked")


def test_an_attempt_that_must_be_is_made_over_an_open_breaker(path):
    process = Process(path)
    process.at(100)
    for _ in range(SETTINGS.breaker_failures):
        process.try_once(SMALL, "failed")
    assert process.begin(SMALL) is None
    attempt = process.health.begin(SMALL, SETTINGS, in_any_case=True)
    attempt.worked()
    attempt.close()
    assert process.begin(SMALL) is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(("begin", "worked", "failed", "close", "wait", "long wait", "die"))
        ),
        max_size=60,
    )
)
def test_whatever_happens_at_most_one_probes_and_counts_return_to_nothing(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("health") / "table"
    processes = [Process(path) for _ in range(4)]
    now = 1000.0
    for who, what in steps:
        process = processes[who]
        if what == "begin":
            was_open = process.table.shared[process.table.slot(SMALL) * table_layout.SHARED] != 0
            others = [p for p in processes if p is not process and any(a._is_probe for a in p.attempts.values())]
            number = process.begin(SMALL)
            assert not (was_open and others and number is not None)
        elif what in ("worked", "failed", "close") and process.attempts:
            process.end(next(iter(process.attempts)), None if what == "close" else what)
        elif what == "die":
            process.table.close()
            processes[who] = Process(path)
        now += {"wait": 1.0, "long wait": COOL_DOWN}.get(what, 0.0)
        for each in processes:
            each.at(now)
        held = sum(len(each.attempts) for each in processes)
        assert processes[0].state()[SMALL]["in_flight"] == held
    for process in processes:
        for number in list(process.attempts):
            process.end(number, None)
    assert processes[0].state()[SMALL]["in_flight"] == 0
    for each in processes:
        each.at(now + COOL_DOWN)
    assert processes[0].try_once(SMALL, "worked")
    assert all(each.try_once(SMALL, "worked") for each in processes)
