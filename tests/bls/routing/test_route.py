"""The policy at work: the router with fake engines that are full, broken, slow or left alone."""

import contextlib
import threading
import time

import pytest

from bls import request_log, shadow
from bls.contract import LARGE, SMALL
from bls.errors import BadRequest, Busy, EngineFailed, EngineUnavailable, NotLoaded
from bls.router import Router
from bls.routing import decision_log
from bls.routing.decision import Prompt
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.route import Routing
from bls.routing.shared_table import SharedTable
from bls.watcher import Watch, Watcher
from tests.fakes import FAILURE, FakeEngines, FakeMetrics, FakeModels, patient_watch, request


class Changed:
    """The shipped policy with some lines replaced."""

    def __init__(self, **lines):
        source = SHIPPED.read_text()
        for name, value in lines.items():
            (old,) = [line for line in source.split("\n") if line.split(" =")[0].split(":")[0] == name]
            source = source.replace(old, f"{name} = {value}")
        self.current = load_policy(SHIPPED, source.encode())


class Server:
    """A router over fakes. `answer` gives the last reply of a streamed answer, its text being all of it."""

    def __init__(self, engines=None, log=None, shadow=None, **lines):
        self.models = FakeModels(engines)
        self.metrics = FakeMetrics()
        self.policies = Changed(**lines)
        self.health = EngineHealth(SharedTable(None))
        routing = Routing(self.policies, self.health, log=log, shadow=shadow)
        self.router = Router(self.models, FakeEngines(), self.metrics, routing=routing)

    def answer(self, *args, watch=None, **values):
        given = request(*args, **{"stream": True, **values})
        self.last = self.router.answer(given, watch or patient_watch())
        return list(self.last)[-1]

    def route(self, *args, **values):
        reply = self.answer(*args, **values)
        return reply.decision.model, reply.decision.reason

    def asked(self):
        return [model for model, _, _ in self.models.engine_calls()]

    def state(self):
        self.health.refresh(self.policies.current.settings)
        return self.health.state(self.policies.current.settings)


# Rules meet requests


def test_a_client_that_may_choose_names_a_tier_by_either_name():
    server = Server(CLIENTS_MAY_CHOOSE="True")
    assert server.route(parameters={"tier": "large"}) == (LARGE, "client_choice")
    assert server.route(parameters={"tier": LARGE}) == (LARGE, "client_choice")
    with pytest.raises(BadRequest, match=r"tier is 'huge'; it must be one of small, large"):
        server.answer(parameters={"tier": "huge"})


def test_tenants_and_further_parameters_reach_the_policy():
    server = Server(TENANT_TIERS='{"acme": LARGE}')
    assert server.route(parameters={"tenant": "acme"}) == (LARGE, "tenant")
    for bad in ({"tenant": 5}, {"user": "x" * 300}, {"priority": "high"}, {"tennant": "acme"}):
        with pytest.raises(BadRequest, match=next(iter(bad))):
            server.answer(parameters=bad)


def test_the_same_prompt_without_an_id_is_always_or_never_a_canary():
    server = Server(CANARY_SHARE="0.5")
    reasons = [server.route(f"prompt {number}")[1] for number in range(40)]
    assert {"canary", "default"} == set(reasons)
    assert reasons == [server.route(f"prompt {number}")[1] for number in range(40)]


def test_a_policy_that_refuses_touches_no_engine():
    server = Server()
    source = SHIPPED.read_text().replace(
        "    if not prompt.fits(SMALL):",
        '    if prompt.tenant == "banned":\n        return Decision.refuse("banned")\n    if not prompt.fits(SMALL):',
    )
    server.policies.current = load_policy(SHIPPED, source.encode())
    reply = server.answer(parameters={"tenant": "banned"})
    assert (reply.text, reply.finish_reason) == ("I can't help with that.", "refused")
    assert (reply.decision.reason, server.asked()) == ("banned", [])
    assert server.metrics.values[request_log.REQUESTS, "banned", "none", "refused"] == 1


def test_a_tiers_own_context_shortens_the_engines():
    tiers = '(Tier("small", SMALL, 1, 1, context_tokens=20), Tier("large", LARGE, 2, 2))\n_REST = ('
    server = Server(TIERS=tiers)
    assert server.route("x" * 5, max_tokens=16) == (LARGE, "over_small_context")


# EngineFiles that do not answer


def test_a_request_in_flight_keeps_its_policy():
    server = Server(RETRIES="3")

    def change():
        server.policies.current = Changed(RETRIES="0").current
        return Busy("full")

    server.models.engines = {SMALL: [change], LARGE: [Busy("full")]}
    with pytest.raises(Busy):
        server.answer()
    assert server.asked() == [SMALL, LARGE] * 4


def test_full_queues_are_tried_again_after_a_pause_that_differs():
    server = Server({SMALL: [Busy("full")], LARGE: [Busy("full")]}, RETRIES="2", RETRY_SECONDS="0.01")
    with pytest.raises(Busy):
        server.answer()
    assert server.asked() == [SMALL, LARGE] * 3
    route = Routing(server.policies, server.health).route(
        server.policies.current, Prompt({SMALL: 5, LARGE: 5}, {SMALL: 99, LARGE: 99}, 16)
    )
    pauses = {route.pause_seconds() for _ in range(20)}
    assert len(pauses) == 20 and all(0.005 <= pause <= 0.015 for pause in pauses)


@pytest.mark.parametrize("error", [EngineFailed("broke"), NotLoaded("gone"), EngineUnavailable("dead")])
def test_what_is_not_a_full_queue_is_not_tried_again(error):
    server = Server({SMALL: [error], LARGE: [error]}, RETRIES="3")
    with pytest.raises(type(error)):
        server.answer()
    assert server.asked() == [SMALL, LARGE]


def test_a_client_that_leaves_ends_the_pause():
    left = threading.Event()
    watch = Watch(left.is_set, 1000.0, lambda outcome: None)
    server = Server({SMALL: [Busy("full")], LARGE: [Busy("full")]}, RETRIES="1", RETRY_SECONDS="60")
    threading.Timer(0.3, left.set).start()
    with pytest.raises(Busy):
        server.answer(watch=watch)
    assert server.asked() == [SMALL, LARGE]


def test_an_engine_that_breaks_time_and_again_is_left_alone_for_a_while():
    server = Server({SMALL: [EngineFailed("broke")], LARGE: ["ok"]})
    needed = server.policies.current.settings.breaker_failures
    for _ in range(needed + 3):
        assert server.route()[0] == LARGE
    assert server.asked().count(SMALL) == needed
    assert server.route() == (LARGE, "small_cooling_down")
    assert server.answer().decision.rejected[SMALL] == "cooling_down"
    assert server.state()[SMALL].cooling_down


def test_an_open_breaker_turns_nobody_away_who_has_no_other_engine():
    server = Server({SMALL: [EngineFailed("broke")], LARGE: [EngineFailed("broke")]})
    for _ in range(20):
        with pytest.raises(EngineFailed):
            server.answer()
    server.models.engines = {LARGE: ["ok"]}
    assert server.route() == (LARGE, "small_cooling_down")


def test_what_the_request_is_to_blame_for_opens_no_breaker():
    server = Server({SMALL: [BadRequest("temperature is -1")], LARGE: ["ok"]})
    for _ in range(20):
        with pytest.raises(BadRequest):
            server.answer()
    assert server.state()[SMALL].error_rate == 0.0


def test_breaks_in_mid_stream_open_the_breaker_too():
    server = Server({SMALL: ["Pa", FAILURE], LARGE: ["ok"]})
    finishes = [server.answer().finish_reason for _ in range(10)]
    needed = server.policies.current.settings.breaker_failures
    assert finishes == ["engine_error"] * needed + ["stop"] * (10 - needed)


def test_nothing_stays_in_flight_whatever_happens():
    engines = {SMALL: [EngineFailed("broke")], LARGE: [Busy("full")]}
    server = Server(engines, RETRY_SECONDS="0.01", BREAKER_FAILURES="1000")
    for engine in ([EngineFailed("broke")], [Busy("full")], [NotLoaded("gone")], ["Pa", FAILURE], ["ok"], []):
        server.models.engines[SMALL] = engine
        for stream in (True, False):
            with contextlib.suppress(Busy, EngineFailed, NotLoaded):
                server.answer(stream=stream)
    replies = server.router.answer(request(stream=True), patient_watch())
    server.models.engines[SMALL] = ["Pa", "ris"]
    next(replies)
    assert server.state()[SMALL].in_flight == 1
    replies.close()
    state = server.state()
    assert (state[SMALL].in_flight, state[LARGE].in_flight) == (0, 0)
    assert server.models.closed == len(server.asked())


# The first token's time


@pytest.fixture
def watcher():
    watcher = Watcher()
    yield watcher
    watcher.close()


def silent_until_stopped(server):
    """An engine that says nothing until it is stopped, then ends."""

    def wait():
        deadline = time.monotonic() + 60
        while not server.models.stopped and time.monotonic() < deadline:
            time.sleep(0.005)
        return []

    return [wait]


def test_an_engine_without_a_token_in_its_time_is_stopped_and_the_other_answers(watcher):
    server = Server({SMALL: [], LARGE: ["ok"]}, FIRST_TOKEN_SECONDS="{SMALL: 0.05, LARGE: 0.05}")
    server.models.engines[SMALL] = silent_until_stopped(server)
    watch = patient_watch()
    watcher.follow(watch)
    reply = server.answer(watch=watch)
    assert (reply.decision.model, reply.decision.reason) == (LARGE, "small_slow")
    first, second = server.models.engine_calls()
    assert set(server.models.stopped) == {first[1]}
    assert (first[0], second[0]) == (SMALL, LARGE)
    assert server.state()[SMALL].error_rate == 1.0


def test_the_last_engine_takes_its_time(watcher):
    slow = [lambda: time.sleep(0.4) or "ok"]
    server = Server({LARGE: slow}, FIRST_TOKEN_SECONDS="{SMALL: 0.05, LARGE: 0.05}")
    watch = patient_watch()
    watcher.follow(watch)
    assert server.answer(watch=watch).decision.reason == "small_unavailable"
    assert server.models.stopped == []


def test_without_a_stream_no_first_token_can_be_late(watcher):
    server = Server({SMALL: [lambda: time.sleep(0.4) or "ok"]}, FIRST_TOKEN_SECONDS="{SMALL: 0.05, LARGE: 0.05}")
    watch = patient_watch()
    watcher.follow(watch)
    assert server.answer(watch=watch, stream=False).decision.reason == "default"


def test_one_deadline_stands_over_all_attempts(watcher):
    server = Server({SMALL: [], LARGE: []}, FIRST_TOKEN_SECONDS="{SMALL: 0.1, LARGE: 60}")
    silent = silent_until_stopped(server)

    def silent_for_good():
        while len(set(server.models.stopped)) < 2:
            time.sleep(0.005)
        return []

    server.models.engines = {SMALL: silent, LARGE: [silent_for_good]}
    watch = Watch(lambda: False, 0.6, lambda outcome: None)
    watcher.follow(watch)
    begin = time.monotonic()
    assert server.answer(watch=watch).finish_reason == "timeout"
    assert time.monotonic() - begin >= 0.55


# What is counted and recorded


def test_costs_are_counted_against_one_model_answering_everything():
    server = Server(TIERS='(Tier("small", SMALL, 1, 10), Tier("large", LARGE, 5, 50))\n_REST = (')
    server.answer("12345")
    values = server.metrics.values
    assert values[request_log.COST, SMALL] == pytest.approx((5 * 1 + 5 * 10) / 1000)
    assert values[(request_log.BASELINE_COST,)] == pytest.approx((5 * 5 + 5 * 50) / 1000)


def test_a_policy_error_is_counted_and_answered():
    server = Server()
    source = SHIPPED.read_text().replace("    if not prompt.fits(SMALL):", "    1 / 0\n    if not prompt.fits(SMALL):")
    server.policies.current = load_policy(SHIPPED, source.encode())
    assert server.route() == (SMALL, "policy_error")
    assert server.metrics.values[(request_log.POLICY_ERRORS,)] == 1


def test_recorded_decisions_are_made_the_same_again_and_hold_no_text(tmp_path):
    log = tmp_path / "logs" / "decisions.jsonl"
    server = Server({SMALL: [EngineFailed("broke")], LARGE: ["secret answer"]}, log=log, RECORD_MEGABYTES="1")
    for number in range(12):
        server.answer("secret prompt " * (number * 5 + 1), parameters={"tenant": "acme"})
    found = [recorded for _, recorded in decision_log.read(log)]
    assert len(found) == 12
    for recorded in found:
        assert server.policies.current.decide(recorded.prompt, recorded.state) == recorded.decision
        assert recorded.outcome["finish"] == "stop"
    assert found[0].outcome["model"] == LARGE and found[0].decision.model == SMALL
    assert "secret" not in log.read_text()


def test_without_a_place_to_record_the_answer_comes_all_the_same(tmp_path, caplog):
    (tmp_path / "logs").write_text("a file")
    server = Server(log=tmp_path / "logs" / "decisions.jsonl", RECORD_MEGABYTES="1")
    assert server.route() == (SMALL, "default")
    assert "is not recorded" in caplog.text


def test_the_log_line_names_the_policys_version_and_line(caplog):
    caplog.set_level("INFO")
    server = Server()
    decision = server.answer().decision
    assert f"policy={server.policies.current.version}:{decision.line} " in caplog.text


# Shadows


@pytest.mark.parametrize(
    ("large", "outcome", "agreeing"),
    [(["Paris"], "same", 5), (["Pa", "rma"], "other", 3), ([EngineFailed("x")], "failed", 0)],
)
def test_a_shadow_runs_after_the_answer_and_is_compared(large, outcome, agreeing):
    server = Server({SMALL: ["Pa", "ris"], LARGE: large}, SHADOW_SHARE="1.0")
    assert server.answer().text == "" and server.asked() == [SMALL]
    assert server.last.shadow
    server.router.run_shadow(server.last.shadow, patient_watch())
    assert server.asked() == [SMALL, LARGE]
    assert server.metrics.values[shadow.SHADOWS, outcome, LARGE] == 1
    assert server.metrics.values[shadow.SHADOW_TOKENS, LARGE, "yes"] == agreeing


def test_a_shadow_is_left_out_where_half_of_the_processes_are_busy():
    server = Server(SHADOW_SHARE="1.0")
    server.answer()
    server.health.begin(SMALL, server.policies.current.settings)
    server.router.run_shadow(server.last.shadow, patient_watch())
    assert server.asked() == [SMALL]
    assert server.metrics.values[shadow.SHADOWS, "left_out", LARGE] == 1


def test_a_shadow_that_takes_too_long_is_ended():
    server = Server({SMALL: ["a"], LARGE: ["b", "c"]}, SHADOW_SHARE="1.0")
    server.answer()
    server.router.run_shadow(server.last.shadow, Watch(lambda: False, 0.0, lambda outcome: None))
    assert server.metrics.values[shadow.SHADOWS, "late", LARGE] == 1


@pytest.mark.parametrize("given", [{"stop_words": ["i"]}, {"text": "x" * 600}])
def test_what_was_cut_short_or_went_to_the_shadows_model_has_none(given):
    server = Server(SHADOW_SHARE="1.0")
    server.answer(**given)
    assert server.last.shadow is None


def test_another_policy_decides_each_request_unseen_and_is_counted():
    server = Server({SMALL: ["Pa", "ris"]}, shadow=Changed(SMALL_MAX_PROMPT_TOKENS="1"))
    assert server.route("hello") == (SMALL, "default")
    assert server.asked() == [SMALL]
    counted = server.metrics.values
    assert counted[shadow.DECISIONS, "long_prompt", "no", LARGE] == 1
    (large,) = [tier for tier in server.policies.current.settings.tiers if tier.model == LARGE]
    assert counted[shadow.DECISIONS_COST, LARGE] == pytest.approx(large.cost(len("hello"), len("Paris")))


def test_another_policy_that_raises_disturbs_nobody():
    server = Server(shadow=Changed(LARGE_MAX_IN_FLIGHT="None"))
    assert server.route() == (SMALL, "default")
    assert sum(count for key, count in server.metrics.values.items() if key[0] == shadow.DECISIONS) == 1
