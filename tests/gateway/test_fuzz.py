"""Bodies that nobody would write: none of them is a 500, none hangs, and what follows is answered as ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.fuzzing import BODIES, FUZZ, check, requests


@settings(max_examples=150, **FUZZ)
@given(requests())
def test_bodies_that_are_mostly_right(gateway, request):
    check(gateway, *request)


@settings(max_examples=100, **FUZZ)
@given(st.sampled_from(sorted(BODIES)), st.binary(max_size=200))
def test_bodies_that_are_no_json(gateway, path, body):
    check(gateway, path, body)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10_000, **FUZZ)
@given(requests())
def test_ten_thousand_bodies(gateway, request):
    check(gateway, *request)


def test_after_all_that_it_is_idle_and_answers(gateway):
    assert gateway.is_idle()
    assert gateway.chat().status == 200
