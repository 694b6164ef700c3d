from __future__ import annotations

from dataclasses import replace

import pytest

from bls import request_log
from bls.contract import LARGE, SMALL
from bls.routing import service
from scripts.diagnosis.rules import judge
from tests.doctor_cases import finding, names, observed, unsure


@pytest.mark.parametrize(
    ("finish", "count", "said"),
    [
        ("internal", 3, True),
        ("internal", 2, False),
        ("busy", 50, True),
        ("cancelled", 90, False),
        ("refused", 90, False),
    ],
)
def test_requests_that_fail_are_told_by_how_they_ended(finish, count, said):
    name = request_log.REQUESTS
    series = {f'{name}{{finish="{finish}"}}': (1, 1 + count), f'{name}{{finish="stop"}}': (0, 100)}
    seen = observed(series)
    assert (names(seen) == ["requests_fail"]) == said
    assert not said or finding(seen, "requests_fail").subject == finish


def test_three_failures_of_thousands_are_not_told():
    name = request_log.REQUESTS
    assert names(observed({f'{name}{{finish="internal"}}': (0, 3), f'{name}{{finish="stop"}}': (0, 5000)})) == []


def test_a_breaker_is_told_with_those_who_went_around_it():
    opened = service.BREAKERS_OPENED
    series = {
        f'{opened}{{model="{SMALL}"}}': (0, 1),
        f'{opened}{{model="{LARGE}"}}': (4, 4),
        f'{request_log.REQUESTS}{{finish="stop",reason="small_cooling_down"}}': (0, 7),
    }
    only = finding(observed(series), "breaker_open")
    assert (only.subject, only.figure) == (SMALL, "opened 1 times; 7 requests avoided it")
    assert names(observed({f'{opened}{{model="{SMALL}"}}': (3, 3)})) == []
    # It opened before the doctor came.
    of_before = observed({f'{request_log.REQUESTS}{{reason="large_cooling_down"}}': (9, 12)})
    assert finding(of_before, "breaker_open").subject == "large"


REFUSED = 'E1130 1 1 x.py:67] "the policy is refused, the last good one serves on: /a/policy.py:7: RETRIES: it is -1"'
TAKEN = 'W1130 1 1 x.py:67] "/a/policy.py: policy 9d0a41c7be52 takes effect"'


@pytest.mark.parametrize(
    ("before", "during", "counter", "file"),
    [
        ([REFUSED], [], (1, 1), "/a/policy.py:7"),
        ([TAKEN], [REFUSED], (1, 2), "/a/policy.py:7"),
        ([REFUSED], [TAKEN], (1, 1), None),
        ([REFUSED, TAKEN], [], (1, 1), None),
        ([], [], (1, 2), "bls/policy.py"),
        ([], [], (2, 2), None),
    ],
)
def test_a_policy_is_refused_until_another_is_taken(before, during, counter, file):
    series = {f'{service.POLICY_RELOADS}{{outcome="refused"}}': counter}
    findings, _ = judge(observed(series, before=before, log=during))
    assert [each.file for each in findings] == ([file] if file else [])


def test_a_policy_file_that_was_put_back_as_it_was_is_not_refused():
    request = "I1130 1 1 x.py:67] \"request id='' output_tokens=1 policy=9d0a41c7be52:70 verdict=-\""
    for lines in ([TAKEN, REFUSED], [request, REFUSED], [REFUSED, request]):
        seen = observed(before=lines)
        assert names(seen) == ["policy_refused"]
        assert names(replace(seen, policy_version="9d0a41c7be52")) == []
        assert names(replace(seen, policy_version="another")) == ["policy_refused"]


def test_rules_and_checks_that_can_not_decide_are_told():
    seen = observed(
        {
            request_log.POLICY_ERRORS: (1, 2),
            f'{request_log.FAILED_CHECKS}{{check="classifier"}}': (0, 5),
            f'{request_log.FAILED_CHECKS}{{check="script"}}': (0, 1),
            f'{request_log.VERDICTS}{{action="allow"}}': (0, 100),
        }
    )
    assert names(seen) == ["policy_errors", "prompt_check_fails"]


def first_tokens(**by_bound):
    name = request_log.FIRST_TOKEN
    bounds = {bound.lstrip("b").replace("_", "."): count for bound, count in by_bound.items()}
    total = max(bounds.values())
    series = {f'{name}_bucket{{model="{SMALL}",le="{bound}"}}': (0, count) for bound, count in bounds.items()}
    return {
        **series,
        f'{name}_bucket{{model="{SMALL}",le="+Inf"}}': (0, total),
        f'{name}_count{{model="{SMALL}"}}': (0, total),
    }


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"b0_1": 95, "b0_25": 95, "b1": 100}, True),
        ({"b0_1": 99, "b0_25": 100, "b1": 100}, False),  # one in a hundred, and not by much
        ({"b0_01": 95, "b0_1": 95, "b0_25": 100}, False),  # far in proportion, but nobody feels it
        ({"b1": 20, "b2_5": 95, "b5": 100}, False),  # slow, all of them
    ],
)
def test_a_long_tail_is_one_in_proportion_and_in_time(counts, said):
    assert ("long_tail" in names(observed(first_tokens(**counts)))) == said


def test_fewer_than_fifty_answers_have_no_tail():
    seen = observed(first_tokens(b0_1=46, b1=49))
    assert names(seen) == [] and unsure(seen) == {"long_tail"}
