"""Which pod gets a request: what a router knows is how many of its own requests each pod has outstanding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.remote.picker import BOUND

Counts = npt.NDArray[np.int64]
# (outstanding by pod, the pods' numbers, the prompt's beginning, chance) -> a place in those arrays
Choose = Callable[[Counts, Counts, int, np.random.Generator], int]


def at_random(outstanding: Counts, pods: Counts, prefix: int, chance: np.random.Generator) -> int:
    return int(chance.integers(len(pods)))


def power_of_two(outstanding: Counts, pods: Counts, prefix: int, chance: np.random.Generator) -> int:
    """The less busy of two at random."""
    one, other = chance.integers(len(pods), size=2)
    return int(one if outstanding[one] <= outstanding[other] else other)


def least_outstanding(outstanding: Counts, pods: Counts, prefix: int, chance: np.random.Generator) -> int:
    """Of those with the fewest, one at random."""
    least = np.flatnonzero(outstanding == outstanding.min())
    return int(least[chance.integers(len(least))])


def prefix_affinity(outstanding: Counts, pods: Counts, prefix: int, chance: np.random.Generator) -> int:
    """As engines/remote/picker.py: the beginning's own pod by rendezvous hashing, or, where that would have more than
    BOUND times its share, one with the fewest."""
    own = int(_hashed(prefix, pods).argmax())
    most = np.ceil(BOUND * (int(outstanding.sum()) + 1) / len(pods))
    return own if outstanding[own] + 1 <= most else least_outstanding(outstanding, pods, prefix, chance)


def _hashed(prefix: int, pods: Counts) -> Any:
    """64 random bits for each pair, by the finaliser of MurmurHash 3."""
    mixed = pods.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(
        prefix * 0xC2B2AE3D27D4EB4F & (1 << 64) - 1
    )
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    return mixed ^ mixed >> np.uint64(33)


class RoundRobin:
    """One after the other; each router counts for itself."""

    def __init__(self) -> None:
        self._turn = -1

    def __call__(self, outstanding: Counts, pods: Counts, prefix: int, chance: np.random.Generator) -> int:
        self._turn += 1
        return self._turn % len(pods)


CHOICES: dict[str, Callable[[], Choose]] = {
    "random": lambda: at_random,
    "round_robin": RoundRobin,
    "power_of_two": lambda: power_of_two,
    "least_outstanding": lambda: least_outstanding,
    "prefix_affinity": lambda: prefix_affinity,
}
