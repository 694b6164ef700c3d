"""Rules on the machine: what its processors, its memory and /dev/shm are doing, and whether they are what holds up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from bls.contract import PREPROCESSING, ROUTER
from scripts.diagnosis.finding import Finding, NotJudged, Weight
from scripts.diagnosis.rules_engines import SWING_LOOKS, engines, is_always_busy, is_swinging, waiting_anywhere
from scripts.diagnosis.rules_queues import MIN_LOOKS
from scripts.diagnosis.sample import Observation, mean
from scripts.host.preflight import SHM_MIB_PER_INSTANCE

GIB, MIB = 2**30, 2**20
IDLE = 0.5  # the share of the hardware's time below which it isn't what holds requests up
SATURATED = 0.9
LITTLE_MEMORY = 0.05
FULL_SHM = 0.85
READING_S = 0.45  # within less time the use of a CPU that is shared goes up and down by itself
SHM_GROWTH = 16 * MIB  # within one observation: a server that warms up takes less
SHM_HORIZON_S = 3600

Found = Iterator[Finding | NotJudged]

# What the log says of memory that ran out: the pattern, what ran out, and where more of it is to be had.
_MEMORY = (
    (
        re.compile(r"CUDA.*out of memory|cudaErrorMemoryAllocation|cudaMalloc\w*.*fail|OutOfMemoryError: CUDA", re.I),
        "the GPU's memory",
        (
            "kv_cache_free_gpu_mem_fraction, max_batch_size",
            "lower it, or use a quantised engine; for two engines on one GPU, set caps",
        ),
    ),
    (
        re.compile(
            r"shared memory pool|No space left on device|unable to (?:create|initialize|grow) shared memory", re.I
        ),
        "/dev/shm",
        ("instance_group.count", "fewer instances, or start the container with a larger --shm-size"),
    ),
    (
        re.compile(r"std::bad_alloc|MemoryError|Cannot allocate memory|Unable to allocate|out of memory", re.I),
        "the machine's memory",
        ("instance_group.count, max_tokens_in_paged_kv_cache", "fewer processes, a smaller cache, or more memory"),
    ),
)
_HARMLESS = "Unable to allocate pinned system memory"  # said by every server without a GPU


def out_of_memory(seen: Observation) -> Iterator[Finding]:
    """Memory that ran out, or is about to: by the log, the kernel's count of killed processes, and what is free."""
    for pattern, what, (key, change) in _MEMORY:
        lines = [line for line in (*seen.log_before, *seen.log_during) if _kind(line) is pattern]
        if lines:
            yield _memory(
                seen, what, f"{len(lines)} lines of the log say so, the last one: {lines[-1][:160]}", key, change
            )
    first, last = seen.first.machine, seen.last.machine
    if first and last:
        _, what, (key, change) = _MEMORY[-1]
        if killed := last.oom_kills - first.oom_kills:
            yield _memory(seen, what, f"the kernel killed {killed} processes for lack of memory", key, change)
        elif last.memory_available < LITTLE_MEMORY * last.memory_total:
            left = f"{last.memory_available / GIB:.1f} of {last.memory_total / GIB:.1f} GiB are left"
            yield _memory(seen, what, left, key, change)


def _kind(line: str) -> re.Pattern[str] | None:
    if _HARMLESS in line:
        return None
    return next((pattern for pattern, _, _ in _MEMORY if pattern.search(line)), None)


def _memory(seen: Observation, what: str, figure: str, key: str, change: str) -> Finding:
    file = seen.file(next(iter(engines(seen)), ROUTER))
    meaning = "allocations fail, or the kernel kills a process of a model or the whole server"
    return Finding("out_of_memory", Weight.FAILING, what, figure, meaning, file, key, change)


def shm_nearly_full(seen: Observation) -> Iterator[Finding]:
    """The python backend's tensors lie in /dev/shm; where it is full, the whole server dies."""
    first, last = seen.first.machine, seen.last.machine
    if not first or not last:
        return
    grown = first.shm_free - last.shm_free
    left_s = last.shm_free * seen.seconds / grown if grown >= SHM_GROWTH else SHM_HORIZON_S
    used = 1 - last.shm_free / max(1, last.shm_total)
    if used >= FULL_SHM or left_s < SHM_HORIZON_S:
        processes = sum(last.stubs.values())
        growing = f", {grown / MIB:.0f} MB more than {seen.seconds:.0f} s before, so it will be full in {left_s:.0f} s"
        yield Finding(
            "shm_nearly_full",
            Weight.FAILING,
            "/dev/shm",
            f"{used:.0%} of {last.shm_total / MIB:.0f} MB are used" + (growing if left_s < SHM_HORIZON_S else ""),
            "each Python process takes 1 MB and grows in such steps; when it is full, the server dies with signal 11",
            seen.file(ROUTER),
            "instance_group.count",
            f"--shm-size above {2 * SHM_MIB_PER_INSTANCE * processes + 64}m for {processes} processes, or have fewer; "
            "the next scripts/serve removes files that no process maps",
        )


def low_throughput(seen: Observation) -> Found:
    """Requests wait while the hardware idles."""
    waiting, (part, use) = waiting_anywhere(seen), busiest(seen)
    held_up = sum(value >= 1 for value in waiting)
    if not held_up or not part:
        return
    if len(waiting) < MIN_LOOKS:
        yield NotJudged("low_throughput", f"{len(waiting)} readings of the queues; {MIN_LOOKS} are needed")
    elif held_up >= len(waiting) / 2:
        tokens = sum(seen.grown.by("model", "llm_router_output_tokens_total").values()) / seen.seconds
        figure = f"{mean(waiting):.1f} requests waited (mean) at {tokens:.0f} tokens/s, with the {part} {use:.0%} busy"
        if use < IDLE:
            yield Finding(
                "low_throughput",
                Weight.SLOW,
                _narrowest(seen),
                figure,
                "a setting holds the requests up, not the GPU or the CPU",
                seen.file(_narrowest(seen)),
                "instance_group.count" if _narrowest(seen) in (ROUTER, PREPROCESSING) else "max_batch_size",
                "follow the finding on this model, if there is one: too_few_routers, engine_batch_full, kv_cache_full; "
                "otherwise give the engine more work in each step (max_batch_size)",
            )
        elif use >= SATURATED:
            yield Finding(
                "hardware_is_the_limit",
                Weight.SLOW,
                part,
                figure,
                "no setting will make it much faster: the processors are busy, with this or other programs",
                "-",
                "-",
                "a smaller or quantised model, more hardware, or a lower max_queue_size, which refuses sooner",
            )


def cpu_swings(seen: Observation) -> Found:
    """The server's own use of the CPU goes up and down while requests are there all the time."""
    use = _cpu_use(seen)
    if not use or max(use) == 0 or _gpu_use(seen) or not is_always_busy(seen):
        return
    if len(use) < SWING_LOOKS:
        yield NotJudged("cpu_swings", f"{len(use)} readings of the CPU; {SWING_LOOKS} are needed")
    elif is_swinging(use):
        yield Finding(
            "cpu_swings",
            Weight.SLOW,
            "CPU",
            f"the server uses {min(use):.0%} to {max(use):.0%} of the CPU, mean {mean(use):.0%}, "
            "with requests in flight all the time",
            "work comes in waves: batches that run until their longest member ends (V1), clients that send "
            "everything at once and then wait, or long prompts",
            seen.file(next(iter(engines(seen)), ROUTER)),
            "gpt_model_type, enable_chunked_context",
            "inflight_fused_batching and true; let clients send each request as it comes",
        )


def busiest(seen: Observation) -> tuple[str, float]:
    """GPU or CPU, whichever worked more, and the share of its time that it did; "" where neither is known.

    The CPU may be busy with other programs, or the server with all that its container may use: the larger one counts.
    """
    uses = {"GPU": _gpu_use(seen), "CPU": max(_cpu_use(seen), seen.gauge("nv_cpu_utilization"), key=mean)}
    return max(((part, mean(use)) for part, use in uses.items() if use), key=lambda found: found[1], default=("", 0.0))


def _gpu_use(seen: Observation) -> list[float]:
    each = [
        seen.gauge("nv_gpu_utilization", gpu_uuid=gpu) for gpu in seen.last.page.by("gpu_uuid", "nv_gpu_utilization")
    ]
    return [mean(values) for values in zip(*each, strict=True)]


def _cpu_use(seen: Observation) -> list[float]:
    """The server's own processes where it runs on this machine, else the whole machine it runs on."""
    looks = [seen.first]
    for sample in seen.samples:
        if sample.at_s - looks[-1].at_s >= READING_S:
            looks.append(sample)
    shares = []
    for earlier, later in pairwise(looks):
        if earlier.machine and later.machine:
            seconds = later.machine.cpu_seconds - earlier.machine.cpu_seconds
            # A process that ended takes its seconds with it.
            shares.append(min(1.0, max(0.0, seconds) / (later.at_s - earlier.at_s) / later.machine.cores))
    return shares or seen.gauge("nv_cpu_utilization")


def _narrowest(seen: Observation) -> str:
    """The model before which most requests wait."""
    waiting = {model: mean(seen.pending(model)) for model in (ROUTER, PREPROCESSING)}
    for model in engines(seen):
        waiting[model] = mean(seen.gauge("nv_trt_llm_request_metrics", model=model, request_type="waiting"))
    return max(waiting, key=lambda model: waiting[model])
