"""An engine that begins before the classifier has answered: nothing that it says goes out before the verdict."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from bls import request_log
from bls.contract import LARGE, SMALL
from bls.errors import EngineUnavailable
from bls.router import Router
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.route import Routing
from bls.safety.beside import Beside
from bls.safety.judge import PromptSafety
from bls.safety.settings import CLOSED, OPEN, Classifier, Limits, PersonalData, Safety
from tests.fakes import FakeEngines, FakeMetrics, FakeModels, patient_watch, request
from tests.waiting import eventually

SECONDS = 30


class HeldClassifier:
    """Answers once `models` were asked for `engines` streams; None: at once."""

    def __init__(self, scores, models=None, engines=0):
        self.scores, self.models, self.engines = scores, models, engines
        self.seen = ""

    def __call__(self, text):
        self.seen = text
        if self.models is not None:
            assert self.models.reached(self.engines)
        if isinstance(self.scores, Exception):
            raise self.scores
        return self.scores


class WatchedModels(FakeModels):
    """Tells when so many engine streams have given their first response."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self._streams = 0
        self._changed = threading.Condition()

    def reached(self, count):
        with self._changed:
            return self._changed.wait_for(lambda: self._streams >= count, SECONDS)

    def stream(self, *given):
        for number, response in enumerate(super().stream(*given)):
            if number == 0:
                with self._changed:
                    self._streams += 1
                    self._changed.notify_all()
            yield response


class Fixed:
    def __init__(self, checks, early_start=True):
        shipped = load_policy(SHIPPED)
        settings = replace(shipped.settings, safety=Safety(checks), early_start=early_start)
        self.current = replace(shipped, settings=settings)


@pytest.fixture
def beside():
    beside = Beside("classifier")
    yield beside
    beside.close()


CHECKS = (
    Limits(),
    PersonalData(),
    Classifier(refuse_from={"risky": 0.9}, route_from={"code": 0.5}, budget_ms=60_000),
)


def answer(models, given, classify, beside, checks=CHECKS, metrics=None, early_start=True):
    safety = PromptSafety(None, classify, beside=beside)
    routing = Routing(Fixed(checks, early_start))
    router = Router(models, FakeEngines(), metrics or FakeMetrics(), None, safety, routing=routing)
    return list(router.answer(given, patient_watch()))


def engines_of(models):
    return [model for model, _, _ in models.engine_calls()]


def test_the_engine_has_begun_when_the_classifier_answers(beside):
    models = WatchedModels({SMALL: ["Pa", "ris"]})
    replies = answer(models, request(stream=True), HeldClassifier({}, models, 1), beside)
    assert [reply.text for reply in replies] == ["Pa", "ris", ""]
    assert (engines_of(models), replies[-1].verdict) == ([SMALL], ("allow", "clean"))


def test_a_prompt_that_the_classifier_refuses_gets_the_refusal_alone_and_its_engine_is_stopped(beside):
    models, metrics = WatchedModels({SMALL: ["Pa", "ris", "!"]}), FakeMetrics()
    (reply,) = answer(models, request(stream=True), HeldClassifier({"risky": 0.95}, models, 1), beside, metrics=metrics)
    assert (reply.finish_reason, reply.verdict) == ("refused", ("refuse", "classifier_risky"))
    assert "Pa" not in reply.text
    assert (len(models.stopped), models.closed) == (1, 1)
    assert metrics.values[request_log.EARLY_STARTS_UNDONE, "refused"] == 1
    assert metrics.values[(request_log.EARLY_TOKENS,)] == 2


def test_a_signal_that_changes_the_decision_stops_the_engine_and_routes_anew(beside):
    models, metrics = WatchedModels({SMALL: ["no", "thing"], LARGE: ["Par", "is"]}), FakeMetrics()
    replies = answer(models, request(stream=True), HeldClassifier({"code": 0.9}, models, 1), beside, metrics=metrics)
    assert ("".join(reply.text for reply in replies), replies[-1].decision.model) == ("Paris", LARGE)
    assert replies[-1].decision.reason == "hard"
    assert (engines_of(models), len(models.stopped), models.closed) == ([SMALL, LARGE], 1, 2)
    assert metrics.values[request_log.EARLY_STARTS_UNDONE, "rerouted"] == 1


def test_a_signal_that_leaves_the_engine_gives_its_reason_and_stops_nothing(beside):
    models = WatchedModels()
    long = request("x" * 513, stream=True)
    replies = answer(models, long, HeldClassifier({"code": 0.9}, models, 1), beside)
    assert (engines_of(models), models.stopped) == ([LARGE], [])
    assert replies[-1].decision.reason == "hard"


def test_the_fallback_that_took_the_request_keeps_it(beside):
    models = WatchedModels({SMALL: [EngineUnavailable("gone")], LARGE: ["Par", "is"]})
    replies = answer(models, request(stream=True), HeldClassifier({}, models, 1), beside)
    assert (engines_of(models), models.stopped) == ([SMALL, LARGE], [])
    assert replies[-1].decision.reason == "small_unavailable"


@pytest.mark.parametrize(
    ("given", "checks", "early_start"),
    [
        (request(), CHECKS, True),  # one piece: its engine would compute the whole answer for a refusal
        (request(stream=True), CHECKS, False),
        (request(stream=True), (CHECKS[-1], *CHECKS[:-1]), True),  # another check follows the classifier
    ],
)
def test_elsewhere_no_engine_begins_before_the_verdict(beside, given, checks, early_start):
    models = WatchedModels()
    (reply,) = answer(models, given, HeldClassifier({"risky": 0.95}), beside, checks, early_start=early_start)
    assert (reply.finish_reason, engines_of(models)) == ("refused", [])


@pytest.mark.parametrize("stream", [True, False])
def test_a_classifier_that_breaks_and_must_not_refuses_the_prompt_behind_an_early_start_too(beside, stream):
    models = WatchedModels()
    checks = (Limits(), Classifier(on_failure=CLOSED))
    (reply,) = answer(models, request(stream=stream), HeldClassifier(EngineUnavailable("gone")), beside, checks)
    assert (reply.finish_reason, reply.verdict[1]) == ("refused", "classifier_unavailable")


def test_the_classifier_reads_the_prompt_as_it_came_and_the_engine_the_masked_one(beside):
    models = WatchedModels()
    classify = HeldClassifier({"code": 0.9}, models, 1)
    replies = answer(models, request("mail a@example.com", stream=True), classify, beside)
    assert classify.seen == "mail a@example.com"
    assert [call[2]["QUERY"].item() for call in models.calls if "QUERY" in call[2]] == [b"mail [email]"]
    assert replies[-1].verdict == ("mask", "personal_data")


def test_a_check_by_rules_that_refuses_asks_nobody(beside):
    models, classify = WatchedModels(), HeldClassifier({})
    (reply,) = answer(models, request("x" * 200_000, stream=True), classify, beside)
    assert (reply.finish_reason, classify.seen, models.calls) == ("refused", "", [])


@pytest.mark.parametrize("on_failure", [OPEN, CLOSED])
def test_a_frozen_classifier_holds_neither_its_own_request_nor_the_next(beside, on_failure):
    thaw, calls = threading.Event(), []

    def frozen(text):
        calls.append(text)
        assert thaw.wait(SECONDS)
        return {"risky": 0.95}

    checks = (Limits(), Classifier(on_failure=on_failure, refuse_from={"risky": 0.9}, budget_ms=1, rest_seconds=0))
    for _ in range(2):
        replies = answer(FakeModels(), request(stream=True), frozen, beside, checks)
        assert replies[-1].verdict == (
            ("allow", "clean") if on_failure == OPEN else ("refuse", "classifier_unavailable")
        )
    assert len(calls) == 1
    thaw.set()


def test_a_classifier_that_answers_again_is_asked_again(beside):
    thaw = threading.Event()
    checks = (Limits(), Classifier(refuse_from={"risky": 0.9}, budget_ms=1, rest_seconds=0))
    answer(FakeModels(), request(stream=True), lambda text: {"other": float(thaw.wait(SECONDS))}, beside, checks)
    thaw.set()

    def is_asked():
        (*_, last) = answer(FakeModels(), request(), lambda text: {"risky": 0.95}, beside, checks)
        return last.finish_reason == "refused"

    assert eventually(is_asked)
