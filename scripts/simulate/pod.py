"""One engine pod with in-flight batching: so many places, all of which advance together.

A step of the batch gives each running request a token, and takes `base_s + stream_s * running`. A prompt's tokens are
steps of its own request at a fraction of the cost; what of them is in the pod's cache costs nothing. Between two events
all running requests advance at one rate, so each ends once the work for a place, a number that only grows, reaches
what it was at its start and what the request asks for. So events are exact, and nothing is cut into slices of time. Who
comes during a step begins with the next one, and a prompt takes whole steps: tests/scripts/bench/test_simulation.py
holds it to a batch that does one step after the other.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from dataclasses import dataclass

from scripts.simulate.arrivals import Arrival

NEVER = float("inf")
ROUNDING = 1e-6  # steps


@dataclass(frozen=True)
class Engine:
    """How fast a pod is. The defaults fit SmolLM2-135M on 2 cores: 134 tokens/s alone, 457 at 4, 1,371 at 32 streams.

    prompt_cost: of a prompt's token, as a share of an answer's. cached_share: of a prompt, what those that begin alike
    share. cache: how many beginnings a pod remembers. most_waiting: what comes beyond it is turned away.
    """

    places: int = 32
    base_s: float = 0.0070
    stream_s: float = 0.00051
    prompt_cost: float = 0.02
    cached_share: float = 0.5
    cache: int = 32
    most_waiting: float = 64

    def step_s(self, running: int) -> float:
        return self.base_s + self.stream_s * running

    @property
    def tokens_per_second(self) -> float:
        """With every place taken."""
        return self.places / self.step_s(self.places)


class Request:
    """One arrival on its way. Times are None until they are known, and stay so for one that is turned away."""

    __slots__ = ("arrival", "ended_s", "first_s", "pod", "router", "started_s")

    def __init__(self, arrival: Arrival, router: int = 0) -> None:
        self.arrival = arrival
        self.router = router
        self.pod = -1
        self.started_s: float | None = None
        self.first_s: float | None = None
        self.ended_s: float | None = None


class Pod:
    """`take` requests and `advance` to a time; `next_s` is when something happens by itself, NEVER if nothing will."""

    def __init__(self, number: int, engine: Engine, now_s: float = 0.0) -> None:
        self.number = number
        self.engine = engine
        self.waiting: deque[Request] = deque()
        self.running = 0
        self.busy_s = 0.0
        self.hits = self.served = 0
        self.tokens = 0.0
        # Triton's counters, which move when an answer ends: the engine's own queue counts as computing.
        self.queue_s = self.compute_s = 0.0
        self._now_s = now_s
        self._work = 0.0
        self._marks: list[tuple[float, int, bool, Request]] = []
        self._marked = 0
        self._beginnings: OrderedDict[int, None] = OrderedDict()

    @property
    def outstanding(self) -> int:
        return self.running + len(self.waiting)

    @property
    def next_s(self) -> float:
        if not self._marks:
            return NEVER
        return self._now_s + max(0.0, self._marks[0][0] - self._work) * self.engine.step_s(self.running)

    def take(self, request: Request, now_s: float) -> bool:
        """False turns it away."""
        self._advance(now_s)
        if len(self.waiting) >= self.engine.most_waiting:
            return False
        request.pod = self.number
        self.waiting.append(request)
        self._fill(now_s)
        return True

    def work(self, now_s: float) -> list[Request]:
        """Advances to `now_s`, at most `next_s`; the requests that end there."""
        due = self._marks[0][0] if self._marks and now_s >= self.next_s else NEVER
        self._advance(now_s)
        if due < NEVER:
            self._work = max(self._work, due)  # what rounding has left of it
        ended = []
        while self._marks and self._marks[0][0] <= self._work:
            _, _, is_last, request = heapq.heappop(self._marks)
            if not is_last:
                request.first_s = now_s
                continue
            request.ended_s = now_s
            self.running -= 1
            self.served += 1
            self.tokens += request.arrival.tokens
            self.compute_s += now_s - request.arrival.at_s
            self.queue_s += DISPATCH_S
            ended.append(request)
        if ended:
            self._fill(now_s)
        return ended

    def _advance(self, now_s: float) -> None:
        if self.running:
            self._work += (now_s - self._now_s) / self.engine.step_s(self.running)
            self.busy_s += now_s - self._now_s
        self._now_s = now_s

    def _fill(self, now_s: float) -> None:
        while self.waiting and self.running < self.engine.places:
            request = self.waiting.popleft()
            request.started_s = now_s
            self.running += 1
            begin = math.ceil(self._work - ROUNDING) + math.ceil(self._prompt_work(request.arrival))
            self._mark(begin + 1.0, False, request)
            self._mark(begin + max(1.0, request.arrival.tokens), True, request)

    def _mark(self, at: float, is_last: bool, request: Request) -> None:
        self._marked += 1
        heapq.heappush(self._marks, (at, self._marked, is_last, request))

    def _prompt_work(self, arrival: Arrival) -> float:
        """In steps of an answer's token."""
        new = arrival.prompt_tokens
        if arrival.prefix in self._beginnings:
            self.hits += 1
            new *= 1 - self.engine.cached_share
        self._beginnings[arrival.prefix] = None
        self._beginnings.move_to_end(arrival.prefix)
        if len(self._beginnings) > self.engine.cache:
            self._beginnings.popitem(last=False)
        return new * self.engine.prompt_cost


DISPATCH_S = 0.001  # a request's time in Triton's own queue, since the engine takes it at once
