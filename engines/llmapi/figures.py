"""The records of get_stats_async as figures of TensorRT-LLM's metrics.

Its C++ backend makes the same of the same records (custom_metrics_reporter.cc of NVIDIA/TensorRT-LLM, commit 89fd9b7).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from engines.worker.pipeline import Figure

Record = Mapping[str, Any]

# What runs now, which no record says of an engine that stands still.
_WHILE_RUNNING = (
    ("request", "scheduled", "inflightBatchingStats", "numScheduledRequests"),
    ("request", "context", "inflightBatchingStats", "numContextRequests"),
    ("inflight_batcher", "total_context_tokens", "inflightBatchingStats", "numCtxTokens"),
    ("inflight_batcher", "generation_requests", "inflightBatchingStats", "numGenRequests"),
    ("inflight_batcher", "paused_requests", "inflightBatchingStats", "numPausedRequests"),
    ("inflight_batcher", "micro_batch_id", "inflightBatchingStats", "microBatchId"),
)
_ALWAYS = (
    ("kv_cache_block", "reused", "kvCacheStats", "reusedBlocks"),
    ("kv_cache_block", "missed", "kvCacheStats", "missedBlocks"),  # which its C++ backend leaves out
    ("runtime_memory", "cpu", "", "cpuMemUsage"),
    ("runtime_memory", "gpu", "", "gpuMemUsage"),
    ("runtime_memory", "pinned", "", "pinnedMemUsage"),
    ("general", "iteration_counter", "", "iter"),
)


def value(record: Record, group: str, name: str) -> float | None:
    """A number out of a record; None where it isn't there, as some are not in every version."""
    found = (record.get(group) or {} if group else record).get(name)
    return float(found) if isinstance(found, (int, float)) else None


def figures(record: Record, is_running: bool) -> tuple[Figure, ...]:
    """All that the record knows."""
    found = [Figure("general", "timestamp", time.time_ns() // 1000)] if record else []
    for family, kind, group, name in _WHILE_RUNNING + _ALWAYS:
        number = value(record, group, name)
        if number is not None:
            stands_still = not is_running and (family, kind, group, name) in _WHILE_RUNNING
            found.append(Figure(family, kind, 0.0 if stands_still else number))
    return tuple(found)
