"""The shipped rules, as the truth table that an operator would draw; and what a changed number does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from bls.routing.check import check
from bls.routing.decision import Decision, Prompt, State, TierState
from bls.routing.policy_file import SHIPPED, load_policy

policy = load_policy(SHIPPED)


def prompt(tokens=10, max_tokens=16, small_context=8192, large_context=8192, **rest):
    return Prompt({SMALL: tokens, LARGE: tokens}, {SMALL: small_context, LARGE: large_context}, max_tokens, **rest)


def with_numbers(**numbers):
    """The shipped policy with other numbers, as an operator would write them."""
    return load_policy(SHIPPED, source_with(numbers))


def source_with(numbers):
    lines = [
        f"{line.split(' = ')[0]} = {numbers[line.split(' = ')[0].split(':')[0]]!r}"
        if line.split(" = ")[0].split(":")[0] in numbers
        else line
        for line in SHIPPED.read_text().split("\n")
    ]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        (prompt(tokens=512, max_tokens=256), Decision(SMALL, "default")),
        (prompt(tokens=513, max_tokens=32), Decision(LARGE, "long_prompt")),
        (prompt(tokens=10, max_tokens=257), Decision(LARGE, "long_answer")),
        (prompt(tokens=100, max_tokens=29, small_context=128), Decision(LARGE, "over_small_context")),
        (prompt(tokens=100, max_tokens=28, small_context=128), Decision(SMALL, "default")),
        (prompt(tokens=600, max_tokens=300, large_context=512), Decision(SMALL, "over_large_context")),
        (prompt(signals={"hard": 0.5}), Decision(LARGE, "hard")),
        (prompt(signals={"hard": 0.49, "script_zh": 1.0}), Decision(SMALL, "default")),
        (prompt(tokens=9000, verdict="refuse", verdict_reason="jailbreak"), Decision.refuse("jailbreak")),
        (prompt(verdict="mask", verdict_reason="pii"), Decision(SMALL, "default")),
        (prompt(wanted=LARGE, tenant="acme"), Decision(SMALL, "default")),
    ],
)
def test_choose(given, decision):
    assert policy.choose(given) == decision


def test_the_policy_that_is_served_passes_its_own_check():
    """The only test of your own edits."""
    assert check(ROOT / "bls" / "policy.py").settings.models


EDITS = {
    "SMALL_MAX_PROMPT_TOKENS": st.integers(0, 100_000),
    "SMALL_MAX_NEW_TOKENS": st.integers(0, 100_000),
    "HARD_SCORE": st.floats(0.01, 1),
    "HARD_SIGNALS": st.sampled_from([(), ("code",), ("hard", "maths", "advice")]),
    "LARGE_MAX_IN_FLIGHT": st.integers(1, 1000),
    "SHED_MAX_PROMPT_TOKENS": st.integers(0, 100_000),
    "CLIENTS_MAY_CHOOSE": st.booleans(),
    "TENANT_TIERS": st.sampled_from([{}, {"acme": LARGE}]),
    "CANARY_SHARE": st.floats(0, 1),
}


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({}, optional=EDITS))
def test_a_changed_number_is_taken_without_a_change_of_the_examples(numbers):
    check(SHIPPED, source_with(numbers))


@pytest.mark.parametrize(
    ("in_flight", "tokens", "decision"),
    [
        (23, 600, Decision(LARGE, "long_prompt")),
        (24, 600, Decision(SMALL, "large_saturated")),
        (24, 2049, Decision(LARGE, "long_prompt")),
    ],
)
def test_a_saturated_large_model_sheds_short_prompts(in_flight, tokens, decision):
    assert policy.choose(prompt(tokens), State({LARGE: TierState(in_flight=in_flight)})) == decision


def test_a_client_chooses_only_where_that_is_allowed_and_the_context_holds_it():
    free = with_numbers(CLIENTS_MAY_CHOOSE=True)
    assert free.choose(prompt(wanted=LARGE), State()) == Decision(LARGE, "client_choice")
    assert free.choose(prompt(5000, wanted=SMALL), State()) == Decision(SMALL, "client_choice")
    beyond = prompt(5000, wanted=SMALL, small_context=4096)
    assert free.choose(beyond, State()) == Decision(LARGE, "over_small_context")


def test_a_tenants_tier_stands_above_the_lengths():
    acme = with_numbers(TENANT_TIERS={"acme": LARGE, "thrifty": SMALL})
    assert acme.choose(prompt(tenant="acme"), State()) == Decision(LARGE, "tenant")
    assert acme.choose(prompt(3000, tenant="thrifty"), State()) == Decision(SMALL, "tenant")
    assert acme.choose(prompt(tenant="other"), State()) == Decision(SMALL, "default")


def test_the_canary_takes_its_share_and_always_the_same_requests():
    canary = with_numbers(CANARY_SHARE=0.1)
    prompts = [prompt(key=f"request {number}") for number in range(5000)]
    taken = {each.key for each in prompts if canary.choose(each, State()) == Decision(LARGE, "canary")}
    assert 400 < len(taken) < 600
    wider = with_numbers(CANARY_SHARE=0.2)
    assert taken < {each.key for each in prompts if wider.choose(each, State()).reason == "canary"}
