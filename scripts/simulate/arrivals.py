"""When requests come, and how much they ask for: generated, or as a server recorded them.

poisson      at random, at a steady mean rate
bursty       as well, but for every now and then a burst of `BURST` times the rate; the mean is the same
daily        the rate follows a sine of one period over the whole run, from nearly nothing to twice the mean
FILE         a server's logs/decisions.jsonl (RECORD_MEGABYTES of the policy), with the sizes that it recorded

Sizes that are generated have heavy tails: prompts are lognormal, answers Pareto (exponent 1.8).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from bls.routing.decision_log import read

BURST, BURST_SHARE, BURST_S = 5.0, 0.1, 20.0
PARETO = 1.8
MAX_TOKENS = 4096
KINDS = ("poisson", "bursty", "daily")


class BadArrivals(Exception):
    """They can't be made; the message is one line."""


@dataclass(frozen=True)
class Arrival:
    """A request. `prefix` numbers what its prompt begins with, which others share; `at_s` from the beginning."""

    at_s: float
    prompt_tokens: float
    tokens: float
    prefix: int


@dataclass(frozen=True)
class Load:
    """What is generated: mean requests a second, for so long, with so many different beginnings of prompts."""

    kind: str = "poisson"
    rate: float = 10.0
    seconds: float = 600.0
    prompt_tokens: float = 400.0
    tokens: float = 120.0
    prefixes: int = 200

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadArrivals(f"--arrivals is {self.kind!r}; it must be {', '.join(KINDS)} or a file")
        for name in ("rate", "seconds", "prompt_tokens", "tokens", "prefixes"):
            if not getattr(self, name) > 0:
                raise BadArrivals(f"--{name.replace('_', '-')} must be more than 0")


def generate(load: Load, seed: int) -> list[Arrival]:
    """The same for the same seed."""
    chance = np.random.default_rng(seed)
    times = list(_times(load, chance))
    count = len(times)
    # A lognormal of this width has 1 in 100 beyond 10 times its median.
    prompts = chance.lognormal(math.log(load.prompt_tokens) - 0.5, 1.0, count)
    answers = (chance.pareto(PARETO, count) + 1) * load.tokens * (PARETO - 1) / PARETO
    # Some beginnings are far more common than others (Zipf's law with exponent 1).
    weights = 1.0 / np.arange(1, int(load.prefixes) + 1)
    prefixes = chance.choice(int(load.prefixes), count, p=weights / weights.sum())
    sizes = zip(times, np.clip(prompts, 1, MAX_TOKENS), np.clip(answers, 1, MAX_TOKENS), prefixes, strict=True)
    return [Arrival(float(at), float(p), float(n), int(prefix)) for at, p, n, prefix in sizes]


def _times(load: Load, chance: np.random.Generator) -> Iterator[float]:
    """By thinning: arrivals at the highest rate, of which a share is kept that follows the rate."""
    most = {"poisson": 1.0, "bursty": BURST, "daily": 2.0}[load.kind] * load.rate
    bursts = _bursts(load, chance) if load.kind == "bursty" else []
    calm = (1 - BURST * BURST_SHARE) / (1 - BURST_SHARE)
    now = chance.exponential(1 / most)
    while now < load.seconds:
        share = 1.0
        if load.kind == "daily":
            share = (1 - 0.95 * math.cos(2 * math.pi * now / load.seconds)) / 2
        elif load.kind == "bursty" and not any(begin <= now < end for begin, end in bursts):
            share = calm / BURST
        if chance.random() < share:
            yield now
        now += chance.exponential(1 / most)


def _bursts(load: Load, chance: np.random.Generator) -> list[tuple[float, float]]:
    """A share of the time, in pieces of equal length at random places of equal stretches."""
    stretch = BURST_S / BURST_SHARE
    begins = [
        number * stretch + chance.random() * (stretch - BURST_S) for number in range(int(load.seconds / stretch) + 1)
    ]
    return [(begin, begin + BURST_S) for begin in begins]


def recorded(path: Path, model: str, seed: int) -> list[Arrival]:
    """Those of a decision log that a model answered; each second's are spread over it. Raises BadArrivals.

    The log has no text, so whose prompts begin alike is not known: each counts as one of its own.
    """
    chance = np.random.default_rng(seed)
    found: list[tuple[datetime, float, float]] = []
    try:
        for _, line in read(path):
            if line.outcome.get("model") == model and line.outcome.get("output_tokens"):
                prompt = line.prompt.tokens[model]
                found.append((line.state.now, float(prompt), float(line.outcome["output_tokens"])))
    except (OSError, ValueError) as error:
        raise BadArrivals(str(error)) from None
    if not found:
        raise BadArrivals(f"{path} has no answer of {model}")
    first = min(at for at, _, _ in found)
    times = [(at - first).total_seconds() + chance.random() for at, _, _ in found]
    made = [
        Arrival(at, prompt, tokens, place)
        for place, (at, (_, prompt, tokens)) in enumerate(zip(times, found, strict=True))
    ]
    return sorted(made, key=lambda arrival: arrival.at_s)
