"""Which endpoint gets a request, against a slow oracle and by what must hold for any loads."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.remote.picker import BOUND, LEAST_WEIGHT, Candidate, choose, prefix_key, score, weight_at

names = st.integers(1, 254).map(lambda number: f"10.0.0.{number}:8001")
keys = st.binary(min_size=1, max_size=64)
tiers = st.lists(
    st.builds(
        Candidate,
        names,
        load=st.integers(0, 40).map(float),
        weight=st.sampled_from([0.125, 0.25, 0.5, 1.0]),  # exact in binary
        picked=st.integers(0, 5),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each.name,
)


def oracle(candidates, key):
    """The rule word by word, in exact numbers."""
    if key is not None:
        ranked = sorted(candidates, key=lambda each: (score(each, key), each.name))
        weights = sum(Fraction(each.weight) for each in candidates)
        requests = sum(Fraction(each.load) for each in candidates) + 1
        if ranked[-1].load + 1 <= math.ceil(Fraction(BOUND) * requests * Fraction(ranked[-1].weight) / weights):
            return ranked[-1].name
    least = min((Fraction(each.load) + 1) / Fraction(each.weight) for each in candidates)
    tied = [each for each in candidates if (Fraction(each.load) + 1) / Fraction(each.weight) == least]
    return min(tied, key=lambda each: (each.picked, each.name)).name


@given(tiers, st.none() | keys)
def test_the_choice_is_the_oracles(candidates, key):
    assert choose(candidates, key).name == oracle(candidates, key)


@given(tiers, st.none() | keys, st.randoms())
def test_the_order_in_which_they_are_listed_is_no_matter(candidates, key, random):
    shuffled = random.sample(candidates, len(candidates))
    assert choose(shuffled, key) == choose(candidates, key)


idle = st.lists(names, min_size=2, max_size=8, unique=True).map(lambda found: [Candidate(name) for name in found])


@given(idle, keys)
def test_an_endpoint_that_goes_takes_only_its_own_prompts_with_it(candidates, key):
    chosen = choose(candidates, key)
    for gone in candidates:
        if gone != chosen:
            assert choose([each for each in candidates if each != gone], key) == chosen


@given(tiers, keys)
def test_no_endpoint_is_preferred_beyond_its_share(candidates, key):
    chosen = choose(candidates, key)
    least = min((each.load + 1) / each.weight for each in candidates)
    share = (sum(each.load for each in candidates) + 1) * chosen.weight / sum(each.weight for each in candidates)
    assert chosen.load + 1 <= math.ceil(BOUND * share) or (chosen.load + 1) / chosen.weight == least


def test_keys_are_spread_evenly_and_by_weight():
    shares = Counter(
        choose([Candidate("a", weight=0.5), Candidate("b"), Candidate("c")], number.to_bytes(4, "big")).name
        for number in range(4000)
    )
    # 4000 draws: five standard deviations are 130 for a fifth, 155 for two fifths.
    assert abs(shares["a"] - 800) < 130 and abs(shares["b"] - 1600) < 155


def test_requests_without_a_key_take_turns_where_all_have_as_much_to_do():
    picked = {"a": 0, "b": 0, "c": 0}
    order = []
    for number in range(1, 7):
        chosen = choose([Candidate(name, picked=at) for name, at in picked.items()], None).name
        picked[chosen] = number
        order.append(chosen)
    assert order == ["a", "b", "c"] * 2


@given(st.lists(st.integers(0, 40), min_size=0, max_size=12), st.integers(1, 4), st.integers(0, 4))
def test_a_key_is_the_first_whole_blocks(ids, block_tokens, blocks):
    key = prefix_key(np.array([ids], np.int32), block_tokens, blocks)
    whole = min(blocks, len(ids) // block_tokens)
    assert key == (b"".join(id.to_bytes(4, "little") for id in ids[: whole * block_tokens]) if whole else None)


@pytest.mark.parametrize(("age", "weight"), [(0, LEAST_WEIGHT), (5, 0.5), (10, 1.0), (99, 1.0)])
def test_an_endpoint_starts_slowly(age, weight):
    assert weight_at(age, 10) == weight


def test_without_a_slow_start_it_has_its_share_at_once():
    assert weight_at(0, 0) == 1.0
