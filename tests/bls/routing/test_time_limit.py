"""The time limit of one decision. pytest's own limit must be a thread here, since a timer signal is what is tested."""

import threading

import pytest

from bls.contract import LARGE, SMALL
from bls.routing.decision import ALL_WELL, Prompt
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.time_limit import TimeLimit

pytestmark = pytest.mark.timeout(60, method="thread")

FIRST_RULE = "    if not prompt.fits(SMALL):\n"
PROMPT = Prompt({SMALL: 77, LARGE: 77}, {SMALL: 8192, LARGE: 8192}, 16)


def policy_that(*lines):
    source = SHIPPED.read_text().replace(FIRST_RULE, "".join(f"    {line}\n" for line in lines) + FIRST_RULE)
    return load_policy(SHIPPED, source.encode())


@pytest.mark.parametrize(
    "lines",
    [
        ("while True:", "    pass"),
        ("import time", "time.sleep(1000)"),
        ("import re", "re.match(r'(a+)+$', 'a' * 60 + 'b')"),
        (
            "for _ in range(3):",
            "    try:",
            "        while True: pass",
            "    except BaseException: pass",
            "while True: pass",
        ),
        ("try:", "    while True: pass", "except Exception:", "    raise"),
    ],
)
def test_a_decision_that_stalls_is_ended_and_the_default_taken(lines, caplog):
    decision = policy_that(*lines).decide(PROMPT, ALL_WELL, TimeLimit(0.1))
    assert (decision.model, decision.reason) == (SMALL, "policy_error")
    assert decision.line > 1
    assert "PolicyStalled: choose did not come back within 0.1 seconds" in caplog.text


def test_the_limit_is_off_after_each_decision():
    guard = TimeLimit(0.05)
    policy = load_policy(SHIPPED)
    for _ in range(3):
        assert policy.decide(PROMPT, ALL_WELL, guard).reason == "default"
    assert not threading.Event().wait(0.2)  # Where an alarm that is still set would raise.


def test_what_choose_raises_comes_through():
    def choose(prompt, state):
        raise KeyError("tenant")

    with pytest.raises(KeyError, match="tenant"):
        TimeLimit()(choose, PROMPT, ALL_WELL)


def test_outside_the_main_thread_there_is_no_limit_and_the_log_says_so(caplog):
    decisions = []
    thread = threading.Thread(
        target=lambda: decisions.append(load_policy(SHIPPED).decide(PROMPT, ALL_WELL, TimeLimit()))
    )
    thread.start()
    thread.join()
    assert decisions[0].reason == "default"
    assert "not the main thread" in caplog.text
