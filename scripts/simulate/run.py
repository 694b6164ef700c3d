"""The simulation: arrivals, pods that start and end, an event after the other. The same for the same seed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scripts.simulate.arrivals import Arrival
from scripts.simulate.choices import CHOICES, Choose, Counts
from scripts.simulate.pod import NEVER, Engine, Pod, Request
from scripts.simulate.scaling import SIGNALS, SYNC_S, Autoscaler, Limits, Sample

MAX_PODS = 1000


@dataclass(frozen=True)
class Site:
    """`signal`: "" keeps the number of pods. `routers` don't know of one another's requests."""

    pods: int = 1
    routers: int = 1
    choice: str = "least_outstanding"
    signal: str = ""
    engine: Engine = field(default_factory=Engine)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Outcome:
    """All requests in the order of their arrival, all pods that ever were, and by time how many there were."""

    requests: Sequence[Request]
    pods: Sequence[Pod]
    counts: Sequence[tuple[float, int]]
    end_s: float


class Simulation:
    """`run` once."""

    def __init__(self, site: Site, arrivals: Sequence[Arrival], seed: int) -> None:
        self._site = site
        self._chance = np.random.default_rng(seed)
        self._arrivals = arrivals
        self._pods: list[Pod] = []
        self._serving: list[Pod] = []
        self._starting: list[float] = []
        self._ending: list[Pod] = []
        self._events: list[tuple[float, int, int]] = []  # when, of which pod, its event's number
        self._numbers: dict[int, int] = {}
        self._choices: list[Choose] = [CHOICES[site.choice]() for _ in range(site.routers)]
        self._outstanding: Counts = np.zeros((site.routers, MAX_PODS), np.int64)  # of the places in _serving
        self._names: Counts = np.zeros(0, np.int64)
        self._gone = Sample(0)
        self._counts: list[tuple[float, int]] = []
        self._scaler = Autoscaler(SIGNALS[site.signal], site.limits, site.pods) if site.signal else None
        for _ in range(site.pods):
            self._add(0.0)
        self._count(0.0)

    def run(self) -> Outcome:
        requests = [Request(each, place % self._site.routers) for place, each in enumerate(self._arrivals)]
        place, look_s, now_s = 0, SYNC_S if self._scaler else NEVER, 0.0
        while place < len(requests) or self._busy():
            arrive_s = requests[place].arrival.at_s if place < len(requests) else NEVER
            event_s = self._next_event()
            start_s = self._starting[0] if self._starting else NEVER
            now_s = min(arrive_s, event_s, look_s, start_s)
            if now_s == start_s:
                heapq.heappop(self._starting)
                self._add(now_s)
            elif now_s == event_s:
                self._work(now_s)
            elif now_s == arrive_s:
                self._arrive(requests[place], now_s)
                place += 1
            else:
                self._look(now_s)
                look_s += SYNC_S
        return Outcome(requests, self._pods, self._counts, now_s)

    def _busy(self) -> bool:
        return any(pod.outstanding for pod in self._serving) or bool(self._ending)

    def _arrive(self, request: Request, now_s: float) -> None:
        outstanding = self._outstanding[request.router, : len(self._serving)]
        choose = self._choices[request.router]
        at = choose(outstanding, self._names, request.arrival.prefix, self._chance)
        if self._serving[at].take(request, now_s):
            outstanding[at] += 1
        self._schedule(self._serving[at])

    def _work(self, now_s: float) -> None:
        _, number, _ = heapq.heappop(self._events)
        pod = self._pods[number]
        ended = pod.work(now_s)
        if ended and number in self._places:
            for request in ended:
                self._outstanding[request.router, self._places[number]] -= 1
        elif pod in self._ending and not pod.outstanding:
            self._ending.remove(pod)
            self._count(now_s)
        self._schedule(pod)

    def _schedule(self, pod: Pod) -> None:
        self._numbers[pod.number] = number = self._numbers.get(pod.number, 0) + 1
        if (at := pod.next_s) < NEVER:
            heapq.heappush(self._events, (at, pod.number, number))

    def _next_event(self) -> float:
        while self._events and self._numbers[self._events[0][1]] != self._events[0][2]:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else NEVER

    def _look(self, now_s: float) -> None:
        assert self._scaler is not None
        wanted = self._scaler.look(now_s, self._serving, self._gone)
        for _ in range(wanted - len(self._serving) - len(self._starting)):
            heapq.heappush(self._starting, now_s + self._site.limits.start_s)
        while len(self._serving) + len(self._starting) > wanted and self._starting:
            self._starting.pop()
        while len(self._serving) > max(1, wanted):
            self._remove(now_s)
        self._count(now_s)

    def _add(self, now_s: float) -> None:
        pod = Pod(len(self._pods), self._site.engine, now_s)
        self._pods.append(pod)
        self._serving.append(pod)
        self._outstanding[:, len(self._serving) - 1] = 0
        self._name()
        self._count(now_s)

    def _remove(self, now_s: float) -> None:
        """The newest one gets no more requests, and ends after its last one."""
        pod = self._serving.pop()
        if pod.outstanding:
            self._ending.append(pod)
        gone = self._gone
        self._gone = Sample(
            0, 0, 0, gone.busy_s + pod.busy_s, gone.queue_s + pod.queue_s, gone.compute_s + pod.compute_s
        )
        self._name()

    def _name(self) -> None:
        self._names = np.array([pod.number for pod in self._serving], np.int64)
        self._places = {pod.number: place for place, pod in enumerate(self._serving)}

    def _count(self, now_s: float) -> None:
        """Pods that start take their resources already."""
        self._counts.append((now_s, len(self._serving) + len(self._starting) + len(self._ending)))
