"""Rules on the engines, by TensorRT-LLM's families of metrics (the CPU engines have the first two), and on GPUs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bls.contract import ROUTER
from scripts.diagnosis.finding import Finding, NotJudged, Weight
from scripts.diagnosis.rules_queues import MIN_LOOKS
from scripts.diagnosis.sample import Observation, mean

REQUESTS = "nv_trt_llm_request_metrics"
BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
INPUT_TOKENS = "nv_llm_input_token_len_sum"
BATCHER = "nv_trt_llm_inflight_batcher_metrics"

FULL_CACHE = 0.95
FULL_BATCH = 0.9
MIN_REQUESTS = 50  # from which on not one reused block means something
SWING = 0.4  # standard deviation of the use, in proportion to its mean
IN_USE = 0.3  # what a use that swings must reach; below, nothing is at work
SWING_LOOKS = 6  # different readings: Triton refreshes the gauges every 2 s (--metrics-interval-ms)
FULL_GPU = 0.98

Found = Iterator[Finding | NotJudged]


def kv_cache_full(seen: Observation) -> Found:
    """The KV cache holds back requests, or throws them out to compute them again."""
    for model in engines(seen):
        share = kv_share(seen, model)
        paused = seen.gauge(BATCHER, model=model, inflight_batcher_specific_metric="paused_requests")
        waiting = _requests(seen, model, "waiting")
        held_up = sum(full >= FULL_CACHE and queued >= 1 for full, queued in zip(share, waiting, strict=False))
        if not any(paused) and not held_up:
            continue
        if len(waiting) < MIN_LOOKS:
            yield NotJudged("kv_cache_full", f"{len(waiting)} readings of {model}; {MIN_LOOKS} are needed")
        elif any(paused) or held_up >= len(waiting) / 2:
            out = f", up to {max(paused):.0f} paused" if any(paused) else ""
            blocks = seen.last.page.get(BLOCKS, model=model, kv_cache_block_type="max") or 0
            tokens = blocks * (seen.last.page.get(BLOCKS, model=model, kv_cache_block_type="tokens_per") or 0)
            yield Finding(
                "kv_cache_full",
                Weight.SLOW,
                model,
                f"{mean(share):.0%} of its {tokens:.0f} tokens were used while {mean(waiting):.1f} requests "
                f"waited (mean){out}",
                "no request can start until another one ends (guaranteed_no_evict), or the youngest ones give "
                "way and are recomputed later (max_utilization)",
                seen.file(model),
                "max_tokens_in_paged_kv_cache, kv_cache_free_gpu_mem_fraction",
                "raise it by half if there is memory; otherwise a lower max_batch_size, an 8-bit KV cache (half "
                "the bytes per token), or shorter prompts and fewer max_tokens",
            )


def engine_batch_full(seen: Observation) -> Found:
    """Requests wait in the engine though its cache isn't used up: for a place in its batch, for room that is kept in
    the cache for what others may still need, or for the end of a static batch."""
    for model in engines(seen):
        waiting, running = _requests(seen, model, "waiting"), _requests(seen, model, "scheduled")
        held_up = [is_on for is_on, queued in zip(running, waiting, strict=False) if queued >= 1]
        if not held_up or max(kv_share(seen, model), default=0) >= FULL_CACHE:
            continue
        if len(waiting) < MIN_LOOKS:
            yield NotJudged("engine_batch_full", f"{len(waiting)} readings of {model}; {MIN_LOOKS} are needed")
        elif len(held_up) >= len(waiting) / 2:
            most = seen.last.page.get(REQUESTS, model=model, request_type="max") or 0
            name, meaning, key, change = _held_up_by(seen, model, mean(held_up), most)
            figure = (
                f"{mean(held_up):.1f} requests were computed and {mean(waiting):.1f} waited (means); a "
                f"batch holds {most:.0f}"
            )
            yield Finding(name, Weight.SLOW, model, figure, meaning, seen.file(model), key, change)


def _held_up_by(seen: Observation, model: str, running: float, most: float) -> tuple[str, str, str, str]:
    """Name, meaning, key and change: which of the three it is."""
    parameters = seen.models[model].parameters if model in seen.models else {}
    if running >= FULL_BATCH * most:
        is_built = model in seen.models and seen.models[model].backend == "tensorrtllm"
        return (
            "engine_batch_full" if most > 1 else "engine_batch_of_one",
            "the batch is full although the KV cache still has room",
            "max_batch_size",
            "double it, as long as the time per token stays acceptable"
            + ("; the engine must be built for it (trtllm-build --max_batch_size)" if is_built else ""),
        )
    if parameters.get("gpt_model_type", "").upper() == "V1":
        return (
            "engine_batch_static",
            "later requests wait until the longest member of a static batch ends",
            "gpt_model_type",
            "inflight_fused_batching",
        )
    return (
        "kv_cache_reserved",
        "batch and cache have room, but the cache is reserved for what running requests may still need, up to their "
        "max_tokens (guaranteed_no_evict); or max_num_tokens is no larger than one prompt",
        "max_tokens_in_paged_kv_cache, batch_scheduler_policy, max_num_tokens",
        "a larger cache; clients that ask only for the max_tokens they need; max_utilization, under which a request "
        "may be paused; or double max_num_tokens",
    )


def kv_cache_never_reused(seen: Observation) -> Found:
    """Not one block of the cache served a second request."""
    for model in engines(seen):
        reused = seen.gauge(BLOCKS, model=model, kv_cache_block_type="reused")
        served = seen.counted(model).requests
        if not reused or reused[-1] != reused[0] or not served:
            continue
        missed = seen.grown.get(BLOCKS, model=model, kv_cache_block_type="missed")
        if missed is not None and missed < 2 * served:  # Prompts of one block and a bit have no whole block to share.
            continue
        if served < MIN_REQUESTS:
            yield NotJudged("kv_cache_never_reused", f"{served} requests to {model}; {MIN_REQUESTS} are needed")
        else:
            yield Finding(
                "kv_cache_never_reused",
                Weight.NOTE,
                model,
                f"{served} requests reused no block",
                "equal beginnings of prompts (a system prompt, a chat so far) are recomputed each time; this is "
                "only right if no two prompts begin alike",
                seen.file(model),
                "enable_kv_cache_reuse",
                "true, with an engine built with --use_paged_context_fmha enable; put what is equal first in prompts",
            )


def gpu_swings(seen: Observation) -> Found:
    """A GPU that is busy and idle in turns while requests are there all the time."""
    for gpu in sorted(seen.last.page.by("gpu_uuid", "nv_gpu_utilization")):
        use = _fresh(seen.gauge("nv_gpu_utilization", gpu_uuid=gpu))
        if max(use) == 0 or not is_always_busy(seen):
            continue
        if len(use) < SWING_LOOKS:
            yield NotJudged("gpu_swings", f"{len(use)} readings of the GPU; {SWING_LOOKS} are needed: --seconds 20")
        elif is_swinging(use):
            yield Finding(
                "gpu_swings",
                Weight.SLOW,
                gpu,
                f"busy {min(use):.0%} to {max(use):.0%}, mean {mean(use):.0%}, with requests in flight all the time",
                "the GPU waits for work: because batches run until their longest member ends (V1), because there "
                "are few streams, or because tokenizers are too slow",
                seen.file(next(iter(engines(seen)), "tensorrt_llm_large")),
                "gpt_model_type, enable_chunked_context",
                "inflight_fused_batching and true; then see too_few_routers (more streams) and too_few_tokenizers; "
                "nsys shows the gaps (docs/tuning.md)",
            )


def gpu_memory_full(seen: Observation) -> Iterator[Finding]:
    """The next allocation may fail."""
    for gpu, total in seen.last.page.by("gpu_uuid", "nv_gpu_memory_total_bytes").items():
        used = seen.last.page.get("nv_gpu_memory_used_bytes", gpu_uuid=gpu) or 0
        if total and used >= FULL_GPU * total:
            yield Finding(
                "gpu_memory_full",
                Weight.FAILING,
                gpu,
                f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB are used",
                "a longer prompt, a larger batch or loading a second engine will fail with 'out of memory'",
                seen.file(next(iter(engines(seen)), "tensorrt_llm_large")),
                "kv_cache_free_gpu_mem_fraction",
                "lower it by 0.05; for two engines on one GPU, set max_tokens_in_paged_kv_cache for each "
                "(`python -m scripts.plan` computes it)",
            )


def engines(seen: Observation) -> list[str]:
    """The models that publish an engine's metrics."""
    return sorted(set(seen.last.page.by("model", REQUESTS)))


def kv_share(seen: Observation, model: str) -> list[float]:
    """The share of the engine's KV cache in use, at each look."""
    return seen.gauge(BLOCKS, model=model, kv_cache_block_type="fraction")


def kv_reuse(seen: Observation) -> dict[str, float]:
    """The share of prompts' KV blocks that each engine's cache had already, where prompts came and it can be told.

    TensorRT-LLM's C++ backend doesn't say what it missed; there it is of the tokens that came in.
    """
    shares = {}
    for model in engines(seen):
        counts = {kind: seen.grown.get(BLOCKS, model=model, kv_cache_block_type=kind) for kind in ("reused", "missed")}
        reused, missed = counts.values()
        if reused is not None and missed is None:
            block_tokens = seen.last.page.get(BLOCKS, model=model, kv_cache_block_type="tokens_per")
            tokens = seen.grown.get(INPUT_TOKENS, model=model)
            if block_tokens and tokens is not None:
                missed = max(0.0, tokens / block_tokens - reused)
        if reused is not None and missed is not None and reused + missed:
            shares[model] = reused / (reused + missed)
    return shares


def waiting_anywhere(seen: Observation) -> list[float]:
    """Requests that wait for the router or, behind it, in an engine, at each look."""
    sums = [0.0] * len(seen.samples)
    for values in (seen.pending(ROUTER), *(_requests(seen, model, "waiting") for model in engines(seen))):
        sums = [total + value for total, value in zip(sums, values or sums, strict=True)] if values else sums
    return sums


def is_always_busy(seen: Observation) -> bool:
    """Whether some request was in flight at every look; a load that comes in waves lets the use swing by itself."""
    in_flight = seen.gauge("llm_router_requests_in_flight")
    active = [_requests(seen, model, "active") for model in engines(seen)]
    totals = [sum(values) for values in zip(*filter(None, (in_flight, *active)), strict=True)]
    return bool(totals) and min(totals) > 0


def is_swinging(use: list[float]) -> bool:
    """Whether shares of time go up and down by far."""
    return max(use) >= IN_USE and statistics.pstdev(use) >= SWING * mean(use)


def _requests(seen: Observation, model: str, kind: str) -> list[float]:
    return seen.gauge(REQUESTS, model=model, request_type=kind)


def _fresh(readings: list[float]) -> list[float]:
    """Without those that repeat the one before: the gauge wasn't refreshed in between."""
    return [value for place, value in enumerate(readings) if place == 0 or value != readings[place - 1]]
