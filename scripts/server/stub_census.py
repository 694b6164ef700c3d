"""Which processes of each python model live, which died, and which should be gone.

A model that is loaded anew has its new processes beside the old ones, which Triton ends once their requests have
ended: a second each, and never for a request whose client cancelled at the very end (seen with 2.51). So a count says
little: the processes that began last are the ones that serve, as many as the model's config asks for.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

REMEMBERED = 512  # processes of one model, living or dead


class StubCensus:
    """`look` at the living processes as often as there is time; then ask about a model."""

    def __init__(self) -> None:
        self._births: dict[str, list[int]] = defaultdict(list)  # every process seen, in the order of their beginning
        self._living: dict[int, str] = {}
        self._superseded_at: dict[str, float] = {}

    def look(self, living: Mapping[int, str]) -> set[str]:
        """The models that lost a process since the last look. `living`: the model of each process, the oldest first."""
        lost = {model for pid, model in self._living.items() if living.get(pid) != model}
        for pid, model in living.items():
            if self._living.get(pid) != model:
                self._births[model].append(pid)
                self._superseded_at[model] = time.monotonic()
                del self._births[model][:-REMEMBERED]
        self._living = dict(living)
        return lost

    def forget(self, model: str) -> None:
        """What died of it is no matter: it is not loaded, or was unloaded on purpose."""
        self._births[model] = [pid for pid in self._births[model] if self._living.get(pid) == model]

    def models(self) -> Sequence[str]:
        """Those that have or had processes."""
        return tuple(self._births)

    def dead(self, model: str, expected: int) -> Sequence[int]:
        """Those of the last `expected` processes that have died."""
        return [pid for pid in self._births[model][-expected:] if self._living.get(pid) != model] if expected else []

    def bury(self, model: str, dead: Collection[int]) -> None:
        """Others have taken the place of these processes, and of no living one."""
        self._births[model] = [pid for pid in self._births[model] if pid not in dead]

    def old(self, model: str, expected: int) -> int:
        """How many processes live on that newer ones have replaced."""
        births = self._births[model]
        return sum(self._living.get(pid) == model for pid in births[: len(births) - expected])

    def counts(self) -> Counter[str]:
        """Living processes by model, old ones too."""
        return Counter(self._living.values())

    def settled_s(self, model: str) -> float:
        """Seconds since a new process of it was seen."""
        return time.monotonic() - self._superseded_at.get(model, 0.0)
