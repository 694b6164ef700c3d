"""What the policy is asked and what it answers: small frozen things, all of which can be written as JSON.

A model here is an engine model of the repository, such as tensorrt_llm_small; a tier is its line in the policy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from bls.routing import clock
from bls.routing.old_names import new_signal, with_new_names

NO_MODEL = "none"  # Where a decision names no engine: the request is refused.
_NOTHING: Mapping[str, Any] = MappingProxyType({})


# What a policy that looks for keywords would ask for. It never gets a text; word lists see it, and give a signal.
_ITS_TEXT = ("text", "text_input", "content", "query", "prompt", "words", "raw")
_NO_TEXT = (
    "a policy never sees a prompt's text, so there is no prompt.{name}: put the words into words/deny/<list>.txt, with "
    'action = "monitor" and prompt = "route" in words/categories.toml, and ask prompt.signal("word_<list>")'
)


def _nothing() -> Mapping[str, Any]:
    return _NOTHING


@dataclass(frozen=True)
class Tier:
    """A line of the policy's TIERS. Costs are for 1,000 tokens, in a unit of your own that is the same in all lines.

    `context_tokens` shortens what the engine's manifest says; None leaves it.
    """

    name: str
    model: str
    cost_in: float
    cost_out: float
    context_tokens: int | None = None

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        return (self.cost_in * input_tokens + self.cost_out * output_tokens) / 1000


@dataclass(frozen=True)
class Prompt:
    """What is known of a request before an engine runs; never its text.

    `tokens` and `contexts` are by engine model: the prompt's exact length in that model's own tokens, chat template and
    special tokens included, and how many tokens its context holds, prompt and answer together. `verdict` and `signals`
    come from the prompt's safety checks; `wanted` is the model that the client named; `key` is the request's own.
    """

    tokens: Mapping[str, int]
    contexts: Mapping[str, int]
    max_tokens: int
    counted: str = "text"  # What was counted: text, chat (the template around one message) or messages.
    messages: int = 0
    script: str = ""  # Of most of the letters: latin, zh, ja, ko, ru (Cyrillic), ar ..., as script.py knows them.
    verdict: str = "allow"
    verdict_reason: str = ""
    signals: Mapping[str, float] = field(default_factory=_nothing)
    tenant: str = ""
    user: str = ""
    priority: int = 0
    wanted: str = ""
    parameters: Mapping[str, Any] = field(default_factory=_nothing)
    key: str = ""
    among: tuple[str, ...] | None = None  # of an example: the shares that it is among, whatever its key

    def fits(self, model: str) -> bool:
        """Whether prompt and requested answer stay within the model's context."""
        return self.tokens[model] + self.max_tokens <= self.contexts[model]

    def room(self, model: str) -> int:
        """Tokens that the prompt leaves of the model's context."""
        return self.contexts[model] - self.tokens[model]

    def signal(self, name: str) -> float:
        """A score from 0 to 1; 0 where no check gave one."""
        return self.signals.get(new_signal(name), 0.0)

    def __getattr__(self, name: str) -> Any:
        if name in _ITS_TEXT:
            raise AttributeError(_NO_TEXT.format(name=name))
        raise AttributeError(f"a prompt has no {name}")

    @property
    def language(self) -> str:
        """The old name of `script`, which `scripts/policy check` tells."""
        return self.script

    def is_among(self, name: str, share: float) -> bool:
        """Whether this is one of a share (0 to 1) of all requests, drawn anew for each name. The same request is in or
        out in every process, and when decisions are replayed."""
        if share <= 0:
            return False
        if self.among is not None:
            return name in self.among
        digest = blake2b(f"{name}\0{self.key}".encode("utf-8", "replace"), digest_size=7).digest()
        return int.from_bytes(digest, "big") < share * 2**56


@dataclass(frozen=True)
class TierState:
    """How an engine has done lately, in all router processes together; about a second old at most.

    `cooling_down`: it failed so often that it is left alone for a while. `first_token_seconds` is the mean over the
    breaker's window, None where nothing was measured; `error_rate` is a share of the attempts, 0 to 1.
    """

    ready: bool = True
    in_flight: int = 0
    first_token_seconds: float | None = None
    error_rate: float = 0.0
    cooling_down: bool = False

    @property
    def usable(self) -> bool:
        return self.ready and not self.cooling_down


_WELL = TierState()


@dataclass(frozen=True)
class State:
    """`state[model]`; a model that nothing is known of is taken to be well. `now` is in the policy's TIME_ZONE."""

    tiers: Mapping[str, TierState] = field(default_factory=_nothing)
    now: datetime = clock.NOON

    def __getitem__(self, model: str) -> TierState:
        return self.tiers.get(model, _WELL)


ALL_WELL = State()


@dataclass(frozen=True)
class Decision:
    """The engine model that answers, and one word why: the same in the response, the log and the metrics.

    The rest is filled in: the line of the policy that made it, the policy's version, why each other model was not
    taken, the token counts by model, what was counted, and why a newer version of the file did not decide.
    """

    model: str
    reason: str
    line: int = field(default=-1, compare=False)
    policy: str = field(default="", compare=False)
    rejected: Mapping[str, str] = field(default_factory=_nothing, compare=False)
    tokens: Mapping[str, int] = field(default_factory=_nothing, compare=False)
    counted: str = field(default="", compare=False)
    refused_edit: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.line < 0:  # Whoever wrote `Decision(...)`: frame 1 is the dataclass's __init__.
            object.__setattr__(self, "line", sys._getframe(2).f_lineno)

    @classmethod
    def refuse(cls, reason: str) -> Decision:
        """No engine answers; the client reads the policy's refusal."""
        return cls(NO_MODEL, reason, sys._getframe(1).f_lineno)

    @property
    def is_refusal(self) -> bool:
        return self.model == NO_MODEL

    def as_json(self) -> dict[str, Any]:
        """What `route_info` and the log of decisions hold."""
        return {
            "model": self.model,
            "reason": self.reason,
            "line": self.line,
            "policy": self.policy,
            "rejected": dict(self.rejected),
            "tokens": dict(self.tokens),
            "counted": self.counted,
            **({"refused_edit": self.refused_edit} if self.refused_edit else {}),
        }


class Everywhere(dict[str, int]):
    """The same number for whichever model is asked: for examples."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __missing__(self, model: str) -> int:
        return self.number


@dataclass(frozen=True)
class Example:
    """A line of the policy's EXAMPLES."""

    prompt: Prompt
    state: State
    expected: Decision


def example(
    expected: Decision,
    tokens: int = 10,
    max_tokens: int = 16,
    contexts: Mapping[str, int] = _NOTHING,
    state: Mapping[str, TierState] = _NOTHING,
    now: str | datetime = clock.NOON,
    **rest: Any,
) -> Example:
    """What the policy must say to a prompt of so many tokens for every model, in contexts that hold it (or as given).

    `now` is a time in the policy's zone, "2026-01-05 22:30" or "22:30" of that Monday. Any other field of Prompt may be
    given by name. It is among no share of `is_among` but those that `among` names.
    """
    all_contexts = Everywhere(max(8192, tokens + max_tokens))
    all_contexts.update(contexts)
    rest = {"among": (), **with_new_names(rest)}
    prompt = Prompt(Everywhere(tokens), all_contexts, max_tokens, **rest)
    return Example(prompt, State(state, clock.read(now)), expected)
