"""A router among others that are all at work: where a request goes that has no place, and what its client reads."""

from dataclasses import replace

import pytest

from bls.contract import LARGE, SMALL
from bls.errors import BadRequest, Busy, EngineUnavailable, from_message
from bls.router import Router
from bls.routing.admission import Admission, Places
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.route import Routing
from bls.routing.shared_table import SharedTable
from tests.fakes import FakeEngines, FakeMetrics, FakeModels, patient_watch, request

PROCESSES = 8
POLICY = load_policy(SHIPPED)
POLICY = replace(
    POLICY,
    settings=replace(
        POLICY.settings, max_in_flight={}, max_wait_seconds=1.0, fallback={SMALL: (LARGE,), LARGE: (SMALL,)}
    ),
)


class Server:
    """The last of PROCESSES router processes; the others do what `occupy` says."""

    def __init__(self, path):
        self.others = [EngineHealth(SharedTable(path)) for _ in range(PROCESSES - 1)]
        table = SharedTable(path)
        table.look()
        self.models = FakeModels()
        self.admission = Admission(table, PROCESSES)
        routing = Routing(self, EngineHealth(table), admission=self.admission)
        self.router = Router(self.models, FakeEngines(), FakeMetrics(), routing=routing)

    current = POLICY

    def occupy(self, model, count):
        self.attempts = [self.others.pop().begin(model, POLICY.settings) for _ in range(count)]

    def answer(self, **values):
        return list(self.router.answer(request(stream=True, **values), patient_watch()))[-1]


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path / "table")


def first_choice(server):
    return server.answer().decision.model


def test_a_request_beyond_an_engines_places_goes_to_the_next_engine_of_the_fallback(server):
    chosen = first_choice(server)
    server.occupy(chosen, Places(PROCESSES).at(chosen, POLICY.settings))
    decision = server.answer().decision
    assert decision.model == (LARGE if chosen == SMALL else SMALL)
    assert decision.reason == f"{POLICY.tier_name(chosen)}_full"


def test_a_client_hears_that_an_engine_was_full_if_the_one_after_it_is_not_available(server):
    chosen = first_choice(server)
    server.models.engines[LARGE if chosen == SMALL else SMALL] = [EngineUnavailable("it is frozen")]
    server.occupy(chosen, Places(PROCESSES).at(chosen, POLICY.settings))
    with pytest.raises(Busy, match=f"{chosen} answers .* requests, its most; retry after 1 s$"):
        server.answer()


@pytest.mark.parametrize(("guide", "is_quiet"), [(None, False), ("json", True)])
def test_a_request_whose_grammar_is_compiled_first_is_nobody_elses_wait(server, guide, is_quiet):
    chosen = first_choice(server)
    seen = []
    server.models.engines[chosen] = [lambda: seen.append(server.admission.is_quiet(chosen)) or "ok"]
    server.answer(guided_decoding_guide_type=guide)
    assert seen == [is_quiet]


def test_a_request_beyond_all_places_is_turned_away_before_anything_is_done_for_it(server):
    server.occupy(SMALL, PROCESSES - 1)
    with pytest.raises(Busy, match=r"^\[BUSY\] .*; retry after 1 s$"):
        server.answer()
    assert server.models.calls == []


def test_an_answer_that_has_ended_leaves_its_place(server):
    for _ in range(3 * PROCESSES):
        server.answer()
    server.occupy(SMALL, Places(PROCESSES).all - 1)
    assert server.answer().finish_reason


def test_a_request_that_fails_before_any_engine_leaves_its_place_at_the_door(server):
    def fails(*_):
        raise BadRequest("no such template")

    call, server.models.call = server.models.call, fails
    with pytest.raises(BadRequest):
        server.answer()
    server.models.call = call
    server.occupy(SMALL, Places(PROCESSES).all - 1)
    assert server.answer().finish_reason


def test_the_time_to_retry_after_is_said_once_by_whichever_process_was_busy():
    told = str(Busy("the queue is full", 3))
    assert told == "[BUSY] the queue is full; retry after 3 s"
    assert str(from_message(told)) == told
