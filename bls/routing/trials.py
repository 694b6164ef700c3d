"""Made-up prompts and states, from ordinary to odd: what a policy is tried with before it is taken, or against another.

The same numbers give the same ones, in every process and version of Python.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from bls.routing.clock import NOON
from bls.routing.decision import Prompt, State, TierState

_LENGTHS = (0, 1, 2, 10, 64, 255, 256, 257, 511, 512, 513, 1000, 2048, 2049, 4000, 8191, 8192, 100_000, 10_000_000)
_ANSWERS = (1, 16, 255, 256, 257, 1024, 4096, 2**31 - 1)
_CONTEXTS = (128, 512, 4096, 8192, 131_072, 2**31 - 1)
_NAMES = ("", "a", "acme", "ACME ", "0", "None", "租户", "x" * 300, "a\nb", "\u202e", "'; --", "\ud800")
_SCRIPTS = ("", "latin", "zh", "ja", "ko", "ru", "x-klingon")
_SIGNALS = ("hard", "code", "math", "script_zh", "chat", "unknown signal")
_SCORES = (0.0, 1e-9, 0.3, 0.49999, 0.5, 0.9, 1.0)
_VERDICTS = ("allow", "allow", "allow", "allow", "mask", "route", "refuse")


def trials(models: Sequence[str], count: int, seed: int = 0) -> Iterator[tuple[Prompt, State]]:
    """Each prompt fits at least one model: the others are refused before a policy is asked."""
    source = random.Random(seed)
    while count:
        prompt = _prompt(source, models)
        if any(prompt.fits(model) for model in models):
            count -= 1
            yield prompt, State(_tiers(source, models), NOON + timedelta(minutes=source.randrange(8 * 24 * 60)))


def _prompt(source: random.Random, models: Sequence[str]) -> Prompt:
    tokens = source.choice(_LENGTHS) if source.random() < 0.5 else source.randrange(3000)
    verdict = source.choice(_VERDICTS)
    odd = source.random() < 0.5
    prompt = Prompt(
        # Another tokenizer may make a few more or fewer tokens of the same text.
        tokens={model: max(0, tokens + source.choice((0, 0, 0, -3, 5))) for model in models},
        contexts={model: source.choice(_CONTEXTS) if odd else 8192 for model in models},
        max_tokens=source.choice(_ANSWERS) if source.random() < 0.5 else source.randrange(1, 600),
        counted=source.choice(("text", "chat", "messages")),
        verdict=verdict,
        verdict_reason=source.choice(("", "jailbreak")) if verdict == "refuse" else "",
        signals={name: source.choice(_SCORES) for name in _SIGNALS if source.random() < 0.2},
        key=f"{source.getrandbits(64):x}",
    )
    if not odd:
        return prompt
    return replace(
        prompt,
        messages=source.choice((0, 1, 2, 50, 100_000)),
        script=source.choice(_SCRIPTS),
        tenant=source.choice(_NAMES),
        user=source.choice(_NAMES),
        priority=source.choice((0, 1, 2, 3, 2**31)),
        wanted=source.choice(("", *models)),
        parameters={name: source.choice((True, 0, 1.5, "", "text")) for name in _NAMES if source.random() < 0.1},
        key=source.choice(_NAMES),
    )


def _tiers(source: random.Random, models: Sequence[str]) -> dict[str, TierState]:
    if source.random() < 0.5:
        return {}
    return {
        model: TierState(
            ready=source.random() < 0.8,
            in_flight=source.choice((0, 1, 8, 23, 24, 1000)),
            first_token_seconds=source.choice((None, 0.0, 0.05, 2.0, 3600.0)),
            error_rate=source.choice((0.0, 0.0, 0.1, 1.0)),
            cooling_down=source.random() < 0.2,
        )
        for model in models
        if source.random() < 0.9
    }
