import pytest

from bls import policy
from bls.contract import LARGE, SMALL
from bls.decision import Decision, Prompt


def prompt(tokens=10, max_tokens=16, small_context=8192, large_context=8192):
    return Prompt({SMALL: tokens, LARGE: tokens}, {SMALL: small_context, LARGE: large_context}, max_tokens)


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        (prompt(tokens=512, max_tokens=256), Decision(SMALL, "default")),
        (prompt(tokens=513, max_tokens=32), Decision(LARGE, "long_prompt")),
        (prompt(tokens=10, max_tokens=257), Decision(LARGE, "long_answer")),
        (prompt(tokens=100, max_tokens=29, small_context=128), Decision(LARGE, "over_small_context")),
        (prompt(tokens=100, max_tokens=28, small_context=128), Decision(SMALL, "default")),
        (prompt(tokens=600, max_tokens=300, large_context=512), Decision(SMALL, "over_large_context")),
    ],
)
def test_choose(given, decision):
    assert policy.choose(given) == decision


def test_each_engine_falls_back_to_the_other_with_its_reason():
    assert policy.fall_back(Decision(SMALL, "default"), prompt()) == Decision(LARGE, "small_unavailable")
    assert policy.fall_back(Decision(LARGE, "long_prompt"), prompt()) == Decision(SMALL, "large_unavailable")


def test_an_engine_whose_context_is_too_small_is_no_fallback():
    assert policy.fall_back(Decision(LARGE, "long_prompt"), prompt(tokens=600, small_context=512)) is None
