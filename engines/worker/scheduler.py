"""Which requests the pipeline computes: admission by slots and KV blocks, static or in flight, stop words.

One thread calls it. Each step a waiting request may join and a finished one leave.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bls.errors import RouterError
from engines.worker.generation import Generation
from engines.worker.pipeline import Figure, Pipeline, Produced
from engines.worker.stop_words import StopWords

STOPPED = "stopped"
STOP_WORD = "stop_word"

# A pipeline frees what a cancelled request held in its next step, and counts blocks at the beginning of one.
_STEPS_TO_FREE = 1
_STEPS_TO_COUNT = 1


@dataclass(frozen=True)
class Event:
    """News of one request: new ids, and how it ended, if it did ("end_id", "length", "stop_word", "stopped")."""

    key: int
    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    ended: str = ""
    error: RouterError | None = None

    @property
    def is_last(self) -> bool:
        return bool(self.ended) or self.error is not None


@dataclass(frozen=True)
class Statistics:
    """Requests and KV blocks at the end of a step. `context` requests have no token yet."""

    active: int = 0
    scheduled: int = 0
    context: int = 0
    most: int = 0
    used_blocks: int = 0
    total_blocks: int = 0
    block_tokens: int = 0
    figures: tuple[Figure, ...] = ()


@dataclass
class _Running:
    generation: Generation
    stop_words: StopWords = field(init=False)
    blocks: int = 0
    has_token: bool = False

    def __post_init__(self) -> None:
        self.stop_words = StopWords(self.generation.stop_words)


class Scheduler:
    """`in_flight` lets a request join a running batch; `no_evict` waits until its whole need of blocks fits."""

    def __init__(self, pipeline: Pipeline, max_requests: int, in_flight: bool = True, no_evict: bool = True) -> None:
        self._pipeline = pipeline
        self._most = max_requests
        self._in_flight = in_flight
        self._no_evict = no_evict
        self._waiting: deque[tuple[int, Generation]] = deque()
        self._running: dict[int, _Running] = {}
        self._settling_steps = 0

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do: the last request may leave blocks to be freed and counted."""
        return bool(self._waiting or self._running or self._settling_steps)

    def add(self, key: int, generation: Generation) -> None:
        self._waiting.append((key, generation))

    def stop(self, key: int) -> list[Event]:
        """Ends a request, waiting or running; an unknown one is none of our business."""
        if key in self._running:
            self._cancel(key)
            return [Event(key, ended=STOPPED)]
        waiting = [pair for pair in self._waiting if pair[0] != key]
        if len(waiting) == len(self._waiting):
            return []
        self._waiting = deque(waiting)
        return [Event(key, ended=STOPPED)]

    def step(self) -> list[Event]:
        """One step of the pipeline, of which an exception passes through: the pipeline is lost then."""
        events = self._admit()
        self._settling_steps = max(0, self._settling_steps - 1)
        for produced in self._pipeline.step():
            running = self._running.get(produced.key)
            if running is not None:
                events.append(self._event(running, produced))
        return events

    def statistics(self) -> Statistics:
        context = sum(not running.has_token for running in self._running.values())
        return Statistics(
            active=len(self._running) + len(self._waiting),
            scheduled=len(self._running),
            context=context,
            most=self._most,
            used_blocks=self._pipeline.used_blocks(),
            total_blocks=self._pipeline.total_blocks,
            block_tokens=self._pipeline.block_tokens,
            figures=self._pipeline.figures(),
        )

    def close(self) -> None:
        self._pipeline.close()

    def _admit(self) -> list[Event]:
        refused: list[Event] = []
        if self._running and not self._in_flight:
            return refused
        while self._waiting:
            key, generation = self._waiting[0]
            running = _Running(generation, blocks=self._needed_blocks(generation))
            if not self._has_room(running.blocks):
                break
            self._waiting.popleft()
            try:
                self._pipeline.add(key, generation)
                self._running[key] = running
            except RouterError as error:
                refused.append(Event(key, error=error))
        return refused

    def _has_room(self, blocks: int) -> bool:
        if self._pipeline.schedules_itself and self._in_flight:
            return True
        if len(self._running) >= self._most:
            return False
        reserved = sum(other.blocks for other in self._running.values())
        return not self._running or reserved + blocks <= self._pipeline.total_blocks

    def _needed_blocks(self, generation: Generation) -> int:
        """With eviction only the prompt has to fit; the library takes blocks from the youngest when they run out."""
        if self._no_evict:
            return generation.kv_blocks(self._pipeline.block_tokens)
        return -(-len(generation.prompt) // self._pipeline.block_tokens)

    def _event(self, running: _Running, produced: Produced) -> Event:
        if produced.error is not None:
            self._leave(produced.key, _STEPS_TO_COUNT)
            return Event(produced.key, produced.ids, produced.log_probs, error=produced.error)
        running.has_token = True
        kept = running.stop_words.kept(produced.ids)
        if kept is None:
            if produced.ended:
                self._leave(produced.key, _STEPS_TO_COUNT)
            return Event(produced.key, produced.ids, produced.log_probs, produced.ended)
        if produced.ended:
            self._leave(produced.key, _STEPS_TO_COUNT)
        else:
            self._cancel(produced.key)
        return Event(produced.key, produced.ids[:kept], produced.log_probs[:kept], STOP_WORD)

    def _cancel(self, key: int) -> None:
        self._pipeline.cancel(key)
        self._leave(key, _STEPS_TO_FREE + _STEPS_TO_COUNT)

    def _leave(self, key: int, settling_steps: int) -> None:
        del self._running[key]
        self._settling_steps = max(self._settling_steps, settling_steps)
