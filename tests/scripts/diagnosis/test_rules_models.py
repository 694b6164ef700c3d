from __future__ import annotations

from dataclasses import replace

import pytest

from bls.contract import LARGE, PREPROCESSING, ROUTER, SMALL
from scripts.diagnosis.finding import Weight
from scripts.diagnosis.rules import judge
from scripts.diagnosis.sample import Model
from tests.doctor_cases import MACHINE, READY, finding, names, observed


def test_a_child_of_the_router_that_is_not_ready_is_told_with_its_reason():
    states = {**READY, SMALL: ("UNAVAILABLE", "no engine\\n  File ...")}
    del states[LARGE]
    findings, _ = judge(observed(states=states))
    assert [(each.name, each.subject) for each in findings] == [("child_not_ready", SMALL), ("child_not_ready", LARGE)]
    assert findings[0].figure == f"UNAVAILABLE: no engine, while {ROUTER} is ready"
    assert findings[1].figure == f"not in the model repository, while {ROUTER} is ready"


@pytest.mark.parametrize(
    ("state", "reason", "name"),
    [
        ("UNAVAILABLE", "broken", "model_failed_to_load"),
        ("UNAVAILABLE", "unloaded", "model_unloaded"),
        ("LOADING", "", None),
        ("never loaded", "", None),
    ],
)
def test_another_model_is_told_when_it_failed_or_was_unloaded(state, reason, name):
    assert names(observed(states={**READY, "a": (state, reason)})) == ([name] if name else [])


@pytest.mark.parametrize(("living", "said"), [([2, 2, 2], False), ([2, 1, 2], True), ([2, 2, 0], True)])
def test_a_python_process_that_is_missing_is_dead(living, said):
    machines = [replace(MACHINE, stubs={"a": count}) for count in living]
    seen = observed(looks=3, models=[Model("a", instances=2)], machines=machines)
    assert ("stub_dead" in names(seen)) == said


def test_a_model_that_is_being_unloaded_loses_its_processes_without_being_dead():
    machines = [replace(MACHINE, stubs={"a": count}) for count in (2, 1)]
    seen = observed(looks=2, models=[Model("a", instances=2)], machines=machines)
    away = replace(seen.samples[1], states={"a": ("UNLOADING", "")})
    assert names(replace(seen, samples=(seen.samples[0], away))) == []
    assert names(replace(seen, models={"a": Model("a", backend="onnxruntime", instances=2)})) == []


@pytest.mark.parametrize(
    ("living", "said"), [([4, 4, 4], True), ([2, 5, 5], False), ([6, 5, 4], False), ([2, 2, 2], False)]
)
def test_processes_that_a_reload_left_behind_are_told_unless_they_are_ending(living, said):
    machines = [replace(MACHINE, stubs={"a": count}) for count in living]
    seen = observed(looks=3, models=[Model("a", instances=2)], machines=machines)
    assert ("old_processes" in names(seen)) == said


def test_the_log_tells_of_a_dead_process_on_another_machine():
    line = "E1130 03:37:38 1 x.cc:1] \"Stub process 'tensorrt_llm_small_0_0' is not healthy.\""
    assert finding(observed(log=[line]), "stub_dead").subject == SMALL
    assert names(observed(before=[line])) == []


@pytest.mark.parametrize(("failed", "said"), [((0, 6), True), ((0, 4), False), ((6, 6), False)])
def test_a_model_that_answers_with_errors(failed, said):
    series = {
        f'nv_inference_request_failure{{model="{PREPROCESSING}",reason="BACKEND"}}': failed,
        f'nv_inference_request_success{{model="{PREPROCESSING}"}}': (0, 94),
    }
    seen = observed(series, models=[Model(PREPROCESSING)], log=["E1130 1 1 x.cc:1] why"])
    assert ("backend_errors" in names(seen)) == said
    if said:
        assert "the log's last error: E1130 1 1 x.cc:1] why" in finding(seen, "backend_errors").figure


def test_a_classifier_that_was_left_out_at_the_start_is_told():
    states = {**READY, "text_pipeline_ensemble": ("never loaded", "")}
    assert finding(observed(states=states), "classifier_left_out").weight == Weight.NOTE
    assert "classifier_left_out" not in names(observed(states=READY))
    assert "classifier_left_out" not in names(observed(states={"text_pipeline_ensemble": ("never loaded", "")}))
