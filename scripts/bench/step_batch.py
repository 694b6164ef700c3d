"""A batch in flight, step by step: what scripts/simulate takes a pod to be, but that nothing happens within a step."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from scripts.simulate.pod import Engine


@dataclass
class _Place:
    tokens: int
    work: float  # steps, less those of the prompt


class StepBatch:
    """`add` requests; then `begin` a step, let its time pass, `end` it, as long as `outstanding`.

    A step gives each request in it a token; a prompt's tokens are steps of its own request, as `engine` says.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.hits = 0
        self.waiting: deque[tuple[str, bytes, int, int]] = deque()
        self.running: dict[str, _Place] = {}
        self._beginnings: OrderedDict[bytes, None] = OrderedDict()

    @property
    def outstanding(self) -> int:
        return len(self.running) + len(self.waiting)

    def add(self, key: str, beginning: bytes, prompt_tokens: int, tokens: int) -> None:
        """It waits for a place, which it may have from the next step on."""
        self.waiting.append((key, beginning, prompt_tokens, tokens))

    def begin(self) -> float:
        """Seconds that the step takes; who waits gets the places that are free."""
        while self.waiting and len(self.running) < self.engine.places:
            key, beginning, prompt_tokens, tokens = self.waiting.popleft()
            self.running[key] = _Place(tokens, -self._prompt_steps(beginning, prompt_tokens))
        return self.engine.step_s(len(self.running))

    def end(self) -> dict[str, int]:
        """Tokens that each request in it has by now; one that has all its tokens has left."""
        made = {}
        for key, place in list(self.running.items()):
            place.work += 1
            made[key] = min(max(0, int(place.work)), place.tokens)
            if made[key] == place.tokens:
                del self.running[key]
        return made

    def drop(self, key: str) -> None:
        """It is not wanted any more."""
        self.running.pop(key, None)
        self.waiting = deque(each for each in self.waiting if each[0] != key)

    def _prompt_steps(self, beginning: bytes, tokens: int) -> float:
        new = float(tokens)
        if beginning in self._beginnings:
            self.hits += 1
            new *= 1 - self.engine.cached_share
        self._beginnings[beginning] = None
        self._beginnings.move_to_end(beginning)
        if len(self._beginnings) > self.engine.cache:
            self._beginnings.popitem(last=False)
        return new * self.engine.prompt_cost
