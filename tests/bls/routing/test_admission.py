"""Who is let in, with several views of one table as the router processes; their clock is the test's."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.contract import LARGE, SMALL
from bls.errors import Overloaded
from bls.routing.admission import Admission, Places
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.shared_table import SharedTable

SETTINGS = replace(load_policy(SHIPPED).settings, max_wait_seconds=1.0, max_in_flight={})
WORK = 200.0


class Processes:
    """A server's router processes; `now` is their clock."""

    def __init__(self, path, count, instances=None):
        self.now = 1000.0
        self.tables = [SharedTable(path) for _ in range(count)]
        self.admissions = [Admission(table, instances or count, self.clock) for table in self.tables]
        self.health = [EngineHealth(table, self.clock) for table in self.tables]
        for table in self.tables:
            table.look()

    def clock(self):
        return self.now

    def arrive(self, number, priority=0, settings=SETTINGS):
        """Whether it is let in."""
        try:
            self.admissions[number].arrive(settings, 400, priority)
        except Overloaded as refused:
            assert "retry after" in str(refused)
            return False
        return True

    def may_ask(self, number, model, priority=0, settings=SETTINGS):
        try:
            self.admissions[number].check(model, settings, priority)
        except Overloaded:
            return False
        return True

    def ask(self, number, model, work=WORK):
        since = self.admissions[number].leave_door()
        return self.health[number].begin(model, SETTINGS, work=work, since=since)


@pytest.fixture
def processes(tmp_path):
    return Processes(tmp_path / "table", 16)


@given(st.integers(1, 256))
def test_each_engine_has_places_and_leaves_the_others_some(instances):
    places = Places(instances)
    at_one = places.at(SMALL, SETTINGS)
    assert places.all + places.free == instances
    if instances >= 8:
        assert 1 <= at_one < places.all < instances
    else:
        assert places.all == instances


def test_the_policy_says_how_many_places_an_engine_has():
    settings = replace(SETTINGS, max_in_flight={LARGE: 3})
    assert Places(32).at(LARGE, settings) == 3
    assert Places(32).at(SMALL, settings) == Places(32).at(SMALL, SETTINGS)


def test_numbers_for_all_engines_are_the_only_limit():
    settings = replace(SETTINGS, max_in_flight=dict.fromkeys(SETTINGS.models, 100))
    assert Places(16).total(settings) >= 200
    assert Places(16).total(SETTINGS) == Places(16).all


def test_one_engine_holds_only_its_places_whatever_waits_for_it(processes):
    most = Places(16).at(SMALL, SETTINGS)
    for number in range(most):
        assert processes.arrive(number) and processes.may_ask(number, SMALL)
        processes.ask(number, SMALL)
    assert processes.arrive(most)
    assert not processes.may_ask(most, SMALL)
    assert processes.may_ask(most, LARGE)


def test_all_engines_together_leave_some_processes_free(processes):
    places = Places(16)
    for number in range(places.all):
        assert processes.arrive(number)
        processes.ask(number, SMALL if number % 2 else LARGE)
    assert not processes.arrive(places.all)
    assert processes.arrive(places.all, priority=1)


def test_a_process_that_died_holds_no_place(processes):
    places = Places(16)
    for number in range(places.all):
        processes.arrive(number)
        processes.ask(number, SMALL if number % 2 else LARGE)
    assert not processes.arrive(places.all)
    processes.tables[0].close()
    processes.now += 2.0
    processes.tables[places.all].look()
    processes.tables[places.all].since[:] = processes.now  # They have not waited long: only the places count here.
    assert processes.arrive(places.all)


def test_a_burst_at_a_quiet_server_is_let_in(processes):
    for _ in range(5):
        attempt = processes.ask(0, SMALL)
        processes.now += 0.3
        attempt.worked()
        attempt.close()
    for number in range(10):
        assert processes.arrive(number) and processes.may_ask(number, SMALL)
        processes.ask(number, SMALL)


def overload(processes, seconds_of_one=0.2, waiting=10):
    """Requests of which each waited for those before it."""
    attempts = [processes.ask(number, SMALL) for number in range(waiting)]
    for attempt in attempts:
        processes.now += seconds_of_one
        attempt.worked()
        attempt.close()


def test_who_would_wait_too_long_is_turned_away_and_priority_1_last(processes):
    overload(processes)
    numbers = iter(range(16))
    let_in = []
    for number in numbers:
        if not processes.may_ask(number, SMALL):
            break
        processes.ask(number, SMALL)
        let_in.append(number)
    assert 2 <= len(let_in) <= 9
    assert not processes.may_ask(15, SMALL)
    assert not processes.may_ask(15, SMALL, priority=3)
    assert processes.may_ask(15, SMALL, priority=1)
    assert processes.may_ask(15, LARGE)
    assert processes.arrive(15)  # The other engine could take it.


def test_nobody_is_turned_away_once_the_queue_is_gone(processes):
    overload(processes)
    assert processes.arrive(0) and processes.may_ask(0, SMALL)


def test_when_all_engines_are_late_a_request_is_turned_away_at_the_door(processes):
    for model in SETTINGS.models:
        attempts = [processes.health[number].begin(model, SETTINGS, work=WORK) for number in range(4)]
        processes.now += 3.0
        attempts[0].worked()
    assert not processes.arrive(9)


def test_a_frozen_engine_is_seen_by_those_that_wait_for_it(processes):
    processes.ask(0, SMALL)
    processes.ask(1, SMALL)
    processes.now += 2.0
    assert not processes.may_ask(2, SMALL)
    assert processes.may_ask(2, LARGE)


def test_one_long_prompt_alone_holds_up_nobody(processes):
    processes.ask(0, SMALL, work=8000.0)
    processes.now += 5.0
    assert processes.may_ask(1, SMALL)


@given(st.lists(st.tuples(st.floats(0.001, 30), st.floats(0, 1e5)), max_size=30))
def test_an_engine_without_a_queue_is_never_full(history):
    processes = Processes(None, 1, instances=16)
    for seconds, work in history:
        attempt = processes.ask(0, SMALL, work=work + 1)
        processes.now += seconds
        attempt.worked()
        attempt.close()
        assert processes.may_ask(0, SMALL)
