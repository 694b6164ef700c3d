from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.diagnosis.rules import judge
from scripts.diagnosis.sample import Counts
from tests.doctor_cases import did, finding, names, observed


@pytest.mark.parametrize(("off_s", "said"), [(0, None), (2, None), (100, "100 s ahead"), (-100, "100 s behind")])
def test_a_clock_that_differs_is_told_by_what_the_server_timed_between_two_looks(off_s, said):
    last_s = [{"a": 1000.5 + off_s + look - 1} for look in range(3)]
    seen = observed(looks=3, counts={"a": did(5)}, last_s=last_s)
    findings, _ = judge(seen)
    assert [said in each.figure for each in findings if each.name == "clock_skew"] == ([True] if said else [])


def test_an_old_time_of_a_model_that_answered_nothing_is_no_skew():
    assert names(observed(looks=2, counts={"a": (Counts(3, 3), Counts(3, 3))}, last_s=[{"a": 5.0}] * 2)) == []


def test_a_page_that_stands_still_while_the_server_answers():
    name = 'nv_inference_count{model="a"}'
    assert names(observed({name: 7}, counts={"a": did(5)})) == ["metrics_frozen"]
    assert names(observed({name: (7, 12)}, counts={"a": did(5)})) == []
    assert names(observed({name: 7}, counts={"a": did(4)})) == []


def test_counters_that_fell_are_told_with_whose_they_are():
    counts = {"a": (Counts(9, 9), Counts(2, 2)), "b": (Counts(9, 9), Counts(9, 9))}
    assert finding(observed(counts=counts), "counters_reset").subject == "a"
    # A model that is being loaded is away for a while, and then counts from zero.
    seen = observed(looks=3, counts={"a": (Counts(9, 9), Counts(0, 0))})
    away = replace(seen.samples[1], counts={})
    assert finding(replace(seen, samples=(seen.first, away, seen.last)), "counters_reset").subject == "a"
