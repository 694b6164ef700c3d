"""Which of a tier's endpoints gets a request: the one that has computed the same beginning before, unless it is busy.

Rendezvous hashing of the prompt's first blocks of the KV cache, with bounded loads: an endpoint that would have more
than BOUND times its share of all requests is passed over for the one with the least to do. An endpoint that is new or
has come back has a small weight at first, in both. No clock and no network here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BOUND = 1.25
LEAST_WEIGHT = 0.1  # of an endpoint that has just come


@dataclass(frozen=True)
class Candidate:
    """`load` is what it has to do, in requests; `weight` from LEAST_WEIGHT to 1; of equals the least recently `picked`
    one is taken."""

    name: str
    load: float = 0.0
    weight: float = 1.0
    picked: int = 0


def prefix_key(ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]], block_tokens: int, blocks: int) -> bytes | None:
    """The prompt's first whole blocks, at most so many; None for a prompt that fills none, of which no cache keeps
    anything."""
    whole = min(blocks, ids.size // block_tokens)
    return ids.reshape(-1)[: whole * block_tokens].astype("<i4").tobytes() if whole else None


def weight_at(age_seconds: float, slow_start_seconds: float) -> float:
    """Of an endpoint that came so long ago."""
    return 1.0 if age_seconds >= slow_start_seconds else max(LEAST_WEIGHT, age_seconds / slow_start_seconds)


def choose(candidates: Sequence[Candidate], key: bytes | None) -> Candidate:
    """One of at least one."""
    if key is not None:
        preferred = max(candidates, key=lambda each: (score(each, key), each.name))
        if preferred.load + 1 <= most(preferred, candidates):
            return preferred
    return min(candidates, key=lambda each: ((each.load + 1) / each.weight, each.picked, each.name))


def most(candidate: Candidate, candidates: Sequence[Candidate]) -> int:
    """The requests that it may have, the next one included: BOUND times its share of all."""
    requests = sum(each.load for each in candidates) + 1
    return math.ceil(BOUND * requests * candidate.weight / sum(each.weight for each in candidates))


def score(candidate: Candidate, key: bytes) -> float:
    """The highest of all endpoints has the key. With equal weights an endpoint that comes takes keys for itself alone,
    and one that goes leaves its own alone; with others each has keys by its weight."""
    digest = hashlib.blake2b(key, digest_size=8, salt=hashlib.blake2b(candidate.name.encode(), digest_size=16).digest())
    uniform = (int.from_bytes(digest.digest(), "big") + 0.5) / 2**64
    return candidate.weight / -math.log(uniform)
