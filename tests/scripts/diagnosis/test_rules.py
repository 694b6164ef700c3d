from __future__ import annotations

from dataclasses import replace

from bls import request_log
from bls.contract import ROUTER, SMALL
from bls.paths import ROOT
from scripts.diagnosis import rules
from scripts.diagnosis.finding import Finding, NotJudged, Weight
from scripts.diagnosis.rules import RULES, judge
from scripts.diagnosis.sample import Counts, Model, Observation
from tests.doctor_cases import IN_FLIGHT, MACHINE, PENDING, READY, names, observed


def test_an_idle_server_has_nothing_wrong_and_nothing_unsure():
    models = [Model(ROUTER, instances=32), Model(SMALL, max_batch_size=8, queue_delay_us=100, has_batcher=True)]
    series = {IN_FLIGHT: 0, PENDING % ROUTER: 0, PENDING % SMALL: 0}
    stubs = replace(MACHINE, stubs={ROUTER: 32, SMALL: 1})
    assert judge(observed(series, models=models, states=READY, machines=[stubs] * 8)) == ([], [])


def test_the_worst_comes_first_and_the_order_is_that_of_the_rules():
    states = {ROUTER: ("READY", ""), "x": ("UNAVAILABLE", "broken")}
    seen = observed(
        {request_log.POLICY_ERRORS: (0, 1), PENDING % "a": 20},
        models=[Model("a", queue_delay_us=10**6, max_queue_size=20)],
        states=states,
        counts={"a": (Counts(9, 9), Counts(2, 2))},
    )
    assert [each.weight for each in judge(seen)[0]] == sorted((each.weight for each in judge(seen)[0]), reverse=True)
    told = [name for name in names(seen) if name != "child_not_ready"]
    assert told == ["model_failed_to_load", "queue_full", "policy_errors", "queue_delay_long", "counters_reset"]


def test_every_rule_is_in_the_list_and_in_the_page_of_troubles():
    modules = [getattr(rules, name) for name in dir(rules)]
    imported = {
        each for each in modules if callable(each) and getattr(each, "__module__", "").startswith("scripts.diagnosis.")
    }
    assert imported - {judge, Finding, NotJudged, Observation, Weight} == set(RULES)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    more = {
        "engine_batch_of_one",
        "engine_batch_static",
        "kv_cache_reserved",
        "hardware_is_the_limit",
    }  # that a rule of another name tells
    assert [name for name in ({rule.__name__ for rule in RULES} | more) if f"`{name}`" not in page] == []
