"""Requests that wait for the verdict on their grammar, in the batches that they came in."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bls.errors import RouterError
from engines.triton.grammars import Decided, Grammars
from engines.worker.generation import Guide
from engines.worker.worker import Add

Verdict = tuple[Guide, "RouterError | None"]


@dataclass
class _Batch:
    adds: list[Add]
    unknown: set[Guide]


@dataclass(frozen=True)
class Decision:
    """What a verdict leads to: the keys of requests that end with an error, and batches that may begin."""

    refused: tuple[int, ...]
    ready: tuple[list[Add], ...]


class HeldBatches:
    """A batch leaves when the last of its grammars is known. `wake` is called when there are verdicts to be taken."""

    def __init__(self, grammars: Callable[[Decided], Grammars], wake: Callable[[], None]) -> None:
        self._batches: list[_Batch] = []
        self._verdicts: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        self._wake = wake
        self._grammars = grammars(self._decided)

    def unknown(self, guides: Sequence[Guide | None]) -> set[Guide]:
        """Those that nobody knows yet, which are tried from now on. Raises BadRequest, or Busy where many wait."""
        unknown = {guide for guide in guides if guide is not None and not self._grammars.admits(guide)}
        for guide in unknown:
            self._grammars.ask(guide)
        return unknown

    def hold(self, adds: Sequence[Add], unknown: set[Guide]) -> None:
        self._batches.append(_Batch(list(adds), unknown))

    def verdicts(self) -> Iterator[Verdict]:
        """Those that have come, each to be handed to `decide`."""
        while not self._verdicts.empty():
            yield self._verdicts.get()

    def decide(self, guide: Guide, is_refused: bool) -> Decision:
        """Takes out of the batches what is decided now."""
        refused: list[int] = []
        for batch in self._batches:
            batch.unknown.discard(guide)
            if is_refused:
                refused += [add.key for add in batch.adds if add.generation.guide == guide]
                batch.adds = [add for add in batch.adds if add.generation.guide != guide]
        ready = tuple(batch.adds for batch in self._batches if not batch.unknown)
        self._batches = [batch for batch in self._batches if batch.unknown]
        return Decision(tuple(refused), ready)

    def clear(self) -> None:
        """The requests have ended."""
        self._batches.clear()

    def close(self) -> None:
        self._grammars.close()

    def _decided(self, guide: Guide, error: RouterError | None) -> None:
        self._verdicts.put((guide, error))
        self._wake()
