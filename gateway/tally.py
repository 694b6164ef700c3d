"""What a request has used so far: from the pieces as they come, so that an answer that was left counts too."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gateway.ask import Piece

Prices = Mapping[str, tuple[float, float]]


class Tally:
    """`choices` are the answers for each prompt: a prompt's tokens are shown once, however many answers it has."""

    def __init__(self, prices: Prices, choices: int = 1) -> None:
        self.began = time.monotonic()
        self.first_s: float | None = None
        self.model = self.reason = self.finish = ""
        self._prices = prices
        self._choices = choices
        self._prompts: dict[int, int] = {}
        self._answers: dict[int, tuple[int, int, str]] = {}  # prompt tokens, answered tokens, model

    def add(self, index: int, piece: Piece) -> None:
        if self.first_s is None:
            self.first_s = time.monotonic() - self.began
        if piece.model:
            self.model, self.reason = piece.model, piece.reason or self.reason
        if piece.finish:
            self.finish = piece.finish
        before, tokens, model = self._answers.get(index, (0, 0, ""))
        prompt = piece.input_tokens or before
        self._prompts[index // self._choices] = prompt
        self._answers[index] = prompt, tokens + piece.tokens, piece.model or model

    def add_prompt(self, tokens: int, model: str) -> None:
        """Something was read and nothing answered, as for an embedding."""
        place = len(self._answers)
        self._prompts[place], self._answers[place] = tokens, (tokens, 0, model)
        self.model = model

    @property
    def prompt_tokens(self) -> int:
        return sum(self._prompts.values())

    @property
    def completion_tokens(self) -> int:
        return sum(tokens for _, tokens, _ in self._answers.values())

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost(self) -> float:
        """In the unit of the policy's prices; every answer's prompt counts, as each is computed."""
        found = 0.0
        for prompt, tokens, model in self._answers.values():
            price_in, price_out = self._prices.get(model, (0.0, 0.0))
            found += (prompt * price_in + tokens * price_out) / 1000
        return found

    def usage(self) -> dict[str, int]:
        """As OpenAI's CompletionUsage."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
