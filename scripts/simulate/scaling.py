"""How many pods there should be, as Kubernetes' HorizontalPodAutoscaler asks: every 15 s, by a metric's mean over pods.

waiting       requests that wait for a place, 16 for each pod
load          requests that wait or run by places, 0.7
both          the larger of the two: what the chart sets
cpu           the share of the time in which a pod computes at all, 0.7
queue_ratio   NVIDIA's: time in Triton's queue by time of computing, over the last minute, 1
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scripts.simulate.pod import Pod

WAITING, LOAD = 16.0, 0.7  # as values.yaml of the chart has them
SYNC_S = 15.0
TOLERANCE = 0.1  # Kubernetes' own: so near to the target nothing is changed
RATIO_S = 60.0


@dataclass(frozen=True)
class Limits:
    """Of autoscaling: as the chart sets them, and how long a new pod takes to be ready."""

    least: int = 1
    most: int = 100
    start_s: float = 90.0
    up_s: float = 30.0  # the number may double, or rise by two, within this
    down_s: float = 120.0  # it may fall by one within this,
    stable_s: float = 600.0  # and only to the most that was asked for within this


@dataclass(frozen=True)
class Sample:
    """Sums over the pods that serve."""

    pods: int
    waiting: float = 0.0
    load: float = 0.0
    busy_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0


Signal = Callable[[Sequence[Sample]], float]  # the newest sample last -> metric by target, as a mean over pods


def _waiting(samples: Sequence[Sample]) -> float:
    return samples[-1].waiting / samples[-1].pods / WAITING


def _load(samples: Sequence[Sample]) -> float:
    return samples[-1].load / samples[-1].pods / LOAD


def _cpu(samples: Sequence[Sample]) -> float:
    before = samples[-2] if len(samples) > 1 else Sample(1)
    return (samples[-1].busy_s - before.busy_s) / SYNC_S / samples[-1].pods / 0.7


def _queue_ratio(samples: Sequence[Sample]) -> float:
    before, now = samples[max(0, len(samples) - 1 - int(RATIO_S / SYNC_S))], samples[-1]
    computed = now.compute_s - before.compute_s
    return (now.queue_s - before.queue_s) / max(computed, 1e-6) if computed else 0.0


SIGNALS: dict[str, Signal] = {
    "waiting": _waiting,
    "load": _load,
    "both": lambda samples: max(_waiting(samples), _load(samples)),
    "cpu": _cpu,
    "queue_ratio": _queue_ratio,
}


class Autoscaler:
    """`wanted` after each look is how many pods there should be, those that start included."""

    def __init__(self, signal: Signal, limits: Limits, pods: int) -> None:
        self._signal, self._limits = signal, limits
        self._samples: deque[Sample] = deque(maxlen=int(RATIO_S / SYNC_S) + 1)
        self._asked: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque([(-math.inf, pods)])
        self.wanted = pods

    def look(self, now_s: float, serving: Sequence[Pod], gone: Sample) -> int:
        """`gone`: what the counters of pods that have ended stood at."""
        self._samples.append(
            Sample(
                len(serving),
                sum(len(pod.waiting) for pod in serving),
                sum(pod.outstanding / pod.engine.places for pod in serving),
                gone.busy_s + sum(pod.busy_s for pod in serving),
                gone.queue_s + sum(pod.queue_s for pod in serving),
                gone.compute_s + sum(pod.compute_s for pod in serving),
            )
        )
        by_target = self._signal(self._samples)
        asked = self.wanted
        if abs(by_target - 1) > TOLERANCE:
            asked = math.ceil(len(serving) * by_target - 1e-9)
        asked = min(max(asked, self._limits.least), self._limits.most)
        self._asked.append((now_s, asked))
        while self._asked[0][0] < now_s - self._limits.stable_s:
            self._asked.popleft()
        stable = max(number for _, number in self._asked)
        if asked > self.wanted:
            before = self._before(now_s - self._limits.up_s)
            self._set(now_s, min(asked, max(2 * before, before + 2)))
        elif stable < self.wanted:
            self._set(now_s, max(stable, self._before(now_s - self._limits.down_s) - 1))
        return self.wanted

    def _before(self, at_s: float) -> int:
        """How many were wanted then."""
        while len(self._changes) > 1 and self._changes[1][0] <= at_s:
            self._changes.popleft()
        return self._changes[0][1]

    def _set(self, now_s: float, number: int) -> None:
        if number != self.wanted:
            self.wanted = number
            self._changes.append((now_s, number))
