"""What a stress test sends, and when: requests drawn from a file of prompts, the same for the same seed.

The file has one JSON object a line: `text`, `max_tokens`, and if wanted `kind` (its name in the report), `weight` (how
often it is drawn beside the others, 1) and `times` (how often the text stands in the prompt, 1).
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class BadPlan(Exception):
    """The mix can't be used; the message is one line that names the place."""


@dataclass(frozen=True)
class Prompt:
    """A line of the mix."""

    kind: str
    text: str
    max_tokens: int
    weight: float


@dataclass(frozen=True)
class Planned:
    """One request. `due_s`: seconds after the start at which it is to be sent; 0 where only the others decide that."""

    prompt: Prompt
    due_s: float


def load_mix(path: Path) -> list[Prompt]:
    """Raises BadPlan."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    mix = [_prompt(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not mix:
        raise BadPlan(f"{path} has no prompt")
    return mix


def plan(mix: list[Prompt], requests: int, rate: float | None, seed: int) -> list[Planned]:
    """`rate`: mean requests a second, at random times (Poisson)."""
    chance = random.Random(seed)
    due_s, planned = 0.0, []
    for _ in range(requests):
        if rate:
            due_s += chance.expovariate(rate)
        planned.append(Planned(chance.choices(mix, [prompt.weight for prompt in mix])[0], due_s))
    return planned


def _prompt(line: str, place: str) -> Prompt:
    try:
        found = json.loads(line)
    except ValueError:
        raise BadPlan(f"{place} is not JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("text"), str) or not found["text"]:
        raise BadPlan(f"{place}: text is missing")
    for name in found:
        if name not in ("kind", "text", "max_tokens", "weight", "times"):
            raise BadPlan(f"{place}: {name} is not known")
    max_tokens = _number(found, "max_tokens", 64, place)
    times = _number(found, "times", 1, place)
    weight = found.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise BadPlan(f"{place}: weight is {weight!r}; it must be a number > 0")
    return Prompt(str(found.get("kind", "all")), found["text"] * times, max_tokens, float(weight))


def _number(found: dict[str, Any], name: str, default: int, place: str) -> int:
    value = found.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise BadPlan(f"{place}: {name} is {value!r}; it must be a whole number from 1 to 100000")
    return value
