from __future__ import annotations

from dataclasses import replace

import pytest

from bls.contract import ROUTER
from scripts.diagnosis.rules import judge
from tests.doctor_cases import GIB, IN_FLIGHT, MACHINE, MIB, PENDING, finding, names, observed, unsure


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("E1 x] CUDA out of memory. Tried to allocate 2 GiB", "the GPU's memory"),
        ("E1 x] [TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc: cudaErrorMemoryAllocation", "the GPU's memory"),
        ("E1 x] Failed to increase the shared memory pool size for key 'a'", "/dev/shm"),
        ("E1 x] OSError: [Errno 28] No space left on device", "/dev/shm"),
        ("E1 x] terminate called after throwing an instance of 'std::bad_alloc'", "the machine's memory"),
        ("W1 x] Unable to allocate pinned system memory, pinned memory pool will not be available", None),
        ("I1 x] request id='' model=tensorrt_llm_small reason=default", None),
    ],
)
def test_memory_that_ran_out_is_told_by_the_log(line, subject):
    findings, _ = judge(observed(before=[line]))
    assert [each.subject for each in findings] == ([subject] if subject else [])


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (replace(MACHINE, oom_kills=1), "the kernel killed 1 processes"),
        (replace(MACHINE, memory_available=GIB // 2), "0.5 of 16.0 GiB are left"),
        (replace(MACHINE, memory_available=GIB), None),
    ],
)
def test_memory_that_runs_out_is_told_by_the_machine(last, said):
    findings, _ = judge(observed(looks=2, machines=[MACHINE, last]))
    assert [each.figure.startswith(said or "") for each in findings] == ([True] if said else [])


@pytest.mark.parametrize(
    ("free_mb", "said"),
    [([900, 900], False), ([200, 150], True), ([155, 155], False), ([900, 880], True), ([900, 890], False)],
)
def test_shared_memory_that_is_full_or_soon_will_be(free_mb, said):
    machines = [replace(MACHINE, shm_free=free * MIB) for free in free_mb]
    assert ("shm_nearly_full" in names(observed(looks=2, machines=machines))) == said


def working(shares, **series):
    """A server that uses these shares of four cores between looks."""
    seconds = [4 * sum(shares[:look]) for look in range(len(shares) + 1)]
    machines = [replace(MACHINE, cpu_seconds=each) for each in seconds]
    return observed({IN_FLIGHT: 4, **series}, looks=len(machines), machines=machines)


@pytest.mark.parametrize(
    ("share", "waiting", "said"),
    [(0.2, 3, "low_throughput"), (0.6, 3, None), (0.95, 3, "hardware_is_the_limit"), (0.2, 0, None), (0.95, 0, None)],
)
def test_requests_that_wait_are_held_up_by_a_setting_or_by_the_hardware(share, waiting, said):
    seen = working([share] * 7, **{PENDING % ROUTER: waiting})
    assert names(seen) == ([said] if said else [])


def test_a_processor_that_others_keep_busy_is_a_limit_too():
    seen = working([0.2] * 7, **{PENDING % ROUTER: 3, "nv_cpu_utilization": 0.95})
    assert finding(seen, "hardware_is_the_limit").figure.endswith("with the CPU 95% busy")


def test_too_few_looks_say_nothing_of_the_throughput():
    assert "low_throughput" in unsure(working([0.2] * 3, **{PENDING % ROUTER: 3}))


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.9, 0.1] * 4, True),
        ([0.9, 0.4] * 4, False),
        ([0.2, 0.0] * 4, False),
        ([0.0] * 8, False),
        ([0.9, 0.1] * 2, False),
    ],
)
def test_a_use_of_the_cpu_that_swings_under_a_steady_load(shares, said):
    assert ("cpu_swings" in names(working(shares))) == said
    assert ("cpu_swings" in unsure(working(shares))) == (len(shares) < 6)
    if said:
        pauses = {IN_FLIGHT: [4, 0] * 4 + [4]}
        assert "cpu_swings" not in names(working(shares, **pauses)), "a load that comes in waves"


def test_looks_that_are_too_close_make_one_reading_of_the_cpu():
    seen = working([0.9, 0.1] * 10)
    close = tuple(replace(sample, at_s=sample.at_s / 4) for sample in seen.samples)
    assert "cpu_swings" in names(seen) and "cpu_swings" not in names(replace(seen, samples=close))
