"""What scripts/bench/batching_engine.py, which only Triton can import, has in common with who asks it."""

from __future__ import annotations

BEGINNING = 64  # tokens of a prompt: the two blocks by which a router chooses
REQUESTS, HITS, TOKENS = COUNTERS = tuple(f"batching_engine_{name}_total" for name in ("requests", "hits", "tokens"))
