"""What the policy is asked and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """What is known of a request before an engine runs.

    `tokens` and `contexts` are by engine model: the prompt's exact length in that model's own tokens, chat template and
    special tokens included, and how many tokens its context holds, prompt and answer together.
    """

    tokens: Mapping[str, int]
    contexts: Mapping[str, int]
    max_tokens: int

    def fits(self, model: str) -> bool:
        """Whether prompt and requested answer stay within the model's context."""
        return self.tokens[model] + self.max_tokens <= self.contexts[model]


@dataclass(frozen=True)
class Decision:
    """The engine model that answers, and one word why: the same in the response, the log and the metrics."""

    model: str
    reason: str
