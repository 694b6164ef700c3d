"""The figures of an engine under the names of TensorRT-LLM's metrics, nv_trt_llm_<family>_metrics.

They are those of its C++ backend: custom_metrics_reporter.cc of NVIDIA/TensorRT-LLM, commit 89fd9b7.
"""

from __future__ import annotations

from engines.worker.scheduler import Statistics

# Family -> the name of its label, and what it is about.
FAMILIES = {
    "request": ("request_type", "Requests of the engine, by state"),
    "kv_cache_block": ("kv_cache_block_type", "Blocks of the paged KV cache"),
    "runtime_memory": ("memory_type", "Bytes of memory"),
    "inflight_batcher": ("inflight_batcher_specific_metric", "The batch of the last iteration"),
    "general": ("general_type", "Iterations so far, and microseconds since 1970 of the last figures"),
}


def values(now: Statistics) -> dict[tuple[str, str], float]:
    """All figures by family and kind: those of the scheduler, and above them those that the library knows better."""
    found: dict[tuple[str, str], float] = {
        ("request", "active"): now.active,
        ("request", "max"): now.most,
        ("request", "scheduled"): now.scheduled,
        ("request", "context"): now.context,
        ("kv_cache_block", "max"): now.total_blocks,
        ("kv_cache_block", "used"): now.used_blocks,
        ("kv_cache_block", "tokens_per"): now.block_tokens,
        ("kv_cache_block", "free"): now.total_blocks - now.used_blocks,
        ("kv_cache_block", "fraction"): now.used_blocks / now.total_blocks,
    }
    found |= {(figure.family, figure.kind): figure.value for figure in now.figures}
    found["request", "scheduled"] = min(found["request", "scheduled"], now.active)  # A library's figures may be older.
    found["request", "waiting"] = now.active - found["request", "scheduled"]
    return found
