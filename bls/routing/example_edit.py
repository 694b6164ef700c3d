"""What to write in an example that does not hold, if the rule is meant: the nearest number that makes it hold again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bls.contract import LARGE, SMALL
from bls.routing.decision import Decision, Everywhere, Example, Prompt
from bls.routing.policy_file import Policy

_FARTHEST = 1 << 20
_NAMES = {SMALL: "SMALL", LARGE: "LARGE"}


def edit(policy: Policy, example: Example, decision: Decision) -> str:
    """As in "tokens=300, or Decision(LARGE, "long_prompt")"; `decision` is what the policy says to it now."""
    numbers = {"tokens": example.prompt.tokens, "max_tokens": example.prompt.max_tokens}
    found = []
    for name, given in numbers.items():
        number = given.number if isinstance(given, Everywhere) else given
        nearest = _nearest(policy, example, name, number) if isinstance(number, int) else None
        if nearest is not None:
            found.append(f"{name}={nearest}")
    return ", or ".join([*found, _written(decision)])


def _written(decision: Decision) -> str:
    if decision.is_refusal:
        return f'Decision.refuse("{decision.reason}")'
    return f'Decision({_NAMES.get(decision.model, repr(decision.model))}, "{decision.reason}")'


def _nearest(policy: Policy, example: Example, name: str, number: int) -> int | None:
    """The value nearest to `number` with which the example holds, where it holds from there on."""
    for value in _farther_and_farther(number):
        if _holds(policy, example, name, value):
            fails, holds = number, value
            while abs(holds - fails) > 1:
                middle = (holds + fails) // 2
                fails, holds = (fails, middle) if _holds(policy, example, name, middle) else (middle, holds)
            return holds
    return None


def _farther_and_farther(number: int) -> Iterator[int]:
    distance = 1
    while distance <= _FARTHEST:
        yield from (max(0, number - distance), number + distance)
        distance *= 2


def _holds(policy: Policy, example: Example, name: str, value: int) -> bool:
    try:
        return policy.choose(_with(example.prompt, name, value), example.state) == example.expected
    except (Exception, SystemExit):
        return False


def _with(prompt: Prompt, name: str, value: int) -> Prompt:
    return replace(prompt, tokens=Everywhere(value)) if name == "tokens" else replace(prompt, max_tokens=value)
