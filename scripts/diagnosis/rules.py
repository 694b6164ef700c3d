"""All rules of the doctor, in the order in which findings of one weight are told; see docs/troubleshooting.md.

A rule is a function of an Observation: it yields what is wrong, and NotJudged where it saw too little to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scripts.diagnosis.finding import Finding, NotJudged
from scripts.diagnosis.rules_engines import (
    engine_batch_full,
    gpu_memory_full,
    gpu_swings,
    kv_cache_full,
    kv_cache_never_reused,
)
from scripts.diagnosis.rules_figures import clock_skew, counters_reset, metrics_frozen
from scripts.diagnosis.rules_machine import cpu_swings, low_throughput, out_of_memory, shm_nearly_full
from scripts.diagnosis.rules_models import (
    backend_errors,
    child_not_ready,
    classifier_left_out,
    model_failed_to_load,
    old_processes,
    stub_dead,
)
from scripts.diagnosis.rules_queues import (
    batches_of_one,
    queue_delay_long,
    queue_delay_useless,
    queue_full,
    queue_growing,
    rejections,
    single_instance_stalls,
    too_few_routers,
    too_few_tokenizers,
)
from scripts.diagnosis.rules_router import (
    breaker_open,
    long_tail,
    policy_errors,
    policy_refused,
    prompt_check_fails,
    requests_fail,
)
from scripts.diagnosis.sample import Observation

Rule = Callable[[Observation], Iterator[Finding | NotJudged]]

RULES: tuple[Rule, ...] = (
    out_of_memory,
    shm_nearly_full,
    gpu_memory_full,
    stub_dead,
    child_not_ready,
    model_failed_to_load,
    requests_fail,
    backend_errors,
    breaker_open,
    rejections,
    queue_full,
    queue_growing,
    policy_refused,
    policy_errors,
    prompt_check_fails,
    kv_cache_full,
    engine_batch_full,
    too_few_routers,
    too_few_tokenizers,
    single_instance_stalls,
    queue_delay_long,
    queue_delay_useless,
    batches_of_one,
    low_throughput,
    gpu_swings,
    cpu_swings,
    long_tail,
    classifier_left_out,
    kv_cache_never_reused,
    old_processes,
    metrics_frozen,
    counters_reset,
    clock_skew,
)


def judge(seen: Observation) -> tuple[list[Finding], list[NotJudged]]:
    """What is wrong, the worst first, and what could not be judged."""
    said = [each for rule in RULES for each in rule(seen)]
    findings = [each for each in said if isinstance(each, Finding)]
    return sorted(findings, key=lambda finding: -finding.weight), [each for each in said if isinstance(each, NotJudged)]
