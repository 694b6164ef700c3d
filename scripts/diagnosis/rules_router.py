"""Rules on llm_router's own counters: requests that fail, the policy, breakers, the checks of a prompt, the tail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bls.contract import ROUTER
from scripts.diagnosis.finding import Finding, NotJudged, Weight
from scripts.diagnosis.metrics_page import quantile
from scripts.diagnosis.rules_engines import engines
from scripts.diagnosis.sample import Observation, mean

POLICY = "bls/policy.py"
MIN_FAILURES = 3
FAILURE_SHARE = 0.02
MIN_FIRST_TOKENS = 50  # fewer have no p99
TAIL_RATIO = 5.0
TAIL_S = 0.25  # a tail that is shorter bothers nobody

Found = Iterator[Finding | NotJudged]

# What became of a request (its `finish`), what that means, and what to change: file, key, change.
_FAILURES = {
    "busy": ("every engine's queue was full", "max_queue_size", "serve faster first: engine_batch_full, kv_cache_full"),
    "unavailable": ("no engine was available", "-", "see child_not_ready, stub_dead and breaker_open"),
    "internal": ("an engine took the request and failed", "-", "the server's log says why"),
    "engine_error": ("an engine failed after text had been sent", "-", "the server's log says why"),
    "timeout": (
        "the time limit passed before the answer ended",
        "TIMEOUT_SECONDS",
        "see long_tail and low_throughput first",
    ),
}
_REFUSED = re.compile(r"the policy is refused, the last good one serves on: (.*?)\"?$")
# Said when a version that was never seen before is taken, and of each request.
_IN_FORCE = re.compile(r": policy (\w+) takes effect| policy=(\w+):")


def requests_fail(seen: Observation) -> Iterator[Finding]:
    """Requests that ended otherwise than they should, by how."""
    by_finish = seen.grown.by("finish", "llm_router_requests_total")
    total = sum(by_finish.values())
    for finish, (meaning, key, change) in _FAILURES.items():
        count = by_finish.get(finish, 0.0)
        if count >= MIN_FAILURES and count >= FAILURE_SHARE * total:
            model = next(iter(engines(seen)), "tensorrt_llm_small")
            yield Finding(
                "requests_fail",
                Weight.FAILING,
                finish,
                f"{count:.0f} of {total:.0f} requests",
                meaning,
                POLICY if finish == "timeout" else seen.file(model) if finish == "busy" else "-",
                key,
                change,
            )


def breaker_open(seen: Observation) -> Iterator[Finding]:
    """An engine failed so often that the router leaves it alone."""
    opened = seen.grown.by("model", "llm_router_breakers_opened_total")
    reasons = seen.grown.by("reason", "llm_router_requests_total")
    avoided = {reason: count for reason, count in reasons.items() if reason.endswith("_cooling_down") and count}
    for model, times in sorted(opened.items()):
        tier = next((reason for reason in avoided if f"_{reason.removesuffix('_cooling_down')}" in model), "")
        around = f"; {avoided.pop(tier):.0f} requests avoided it" if tier else ""
        if times or around:
            yield _breaker(model, f"opened {times:.0f} times{around}")
    for reason, count in avoided.items():
        yield _breaker(reason.removesuffix("_cooling_down"), f"{count:.0f} requests avoided it ({reason})")


def _breaker(model: str, figure: str) -> Finding:
    return Finding(
        "breaker_open",
        Weight.FAILING,
        model,
        figure,
        "it has failed too often lately; other engines answer in its place, at their prices",
        POLICY,
        "BREAKER_FAILURES, BREAKER_ERROR_RATE, COOL_DOWN_SECONDS",
        "leave these, and find the cause: the log has each failure; see stub_dead, out_of_memory, child_not_ready",
    )


def policy_refused(seen: Observation) -> Iterator[Finding]:
    """The newest policy file is not the one that decides."""
    refused = seen.grown.get("llm_router_policy_reloads_total", outcome="refused") or 0
    reason = in_force = ""
    for line in (*seen.log_before, *seen.log_during):
        if found := _REFUSED.search(line):
            reason = found[1]
        elif found := _IN_FORCE.search(line):
            reason, in_force = "" if found[1] else reason, found[1] or found[2]
    # A file that was put back as it was is taken without a word.
    if (refused or reason) and not (in_force and in_force == seen.policy_version):
        yield Finding(
            "policy_refused",
            Weight.FAILING,
            ROUTER,
            reason or f"{refused:.0f} reloads were refused",
            "the edited file has no effect; the last good version stays in force",
            reason.split(": ")[0] if reason else POLICY,
            "-",
            "correct what `scripts/policy check` reports, and save the file again",
        )


def policy_errors(seen: Observation) -> Iterator[Finding]:
    """Requests on which `choose` raised or stalled."""
    if count := seen.grown.get("llm_router_policy_errors_total"):
        yield Finding(
            "policy_errors",
            Weight.FAILING,
            ROUTER,
            f"{count:.0f} requests",
            "the policy's rules raised, or took longer than 0.25 s, so DEFAULT decided",
            POLICY,
            "choose",
            "the log names the line; add the case to EXAMPLES",
        )


def prompt_check_fails(seen: Observation) -> Iterator[Finding]:
    """A check of prompts that can't decide: it refuses, or lets through what it should look at."""
    for check, count in sorted(seen.grown.by("check", "llm_router_prompt_check_failures_total").items()):
        judged = sum(seen.grown.by("action", "llm_router_prompt_verdicts_total").values())
        if count >= MIN_FAILURES and count >= FAILURE_SHARE * judged:
            yield Finding(
                "prompt_check_fails",
                Weight.FAILING,
                check,
                f"{count:.0f} of {judged:.0f} prompts",
                "the check failed, so its on_failure refused these prompts or let them pass unchecked",
                POLICY,
                "SAFETY",
                "for the classifier, load text_pipeline_ensemble or raise budget_ms; otherwise see the log",
            )


def long_tail(seen: Observation) -> Found:
    """One request of a hundred waits far longer for its first token than most."""
    name = "llm_router_time_to_first_token_seconds"
    for model, count in sorted(seen.grown.by("model", f"{name}_count").items()):
        if count and count < MIN_FIRST_TOKENS:
            yield NotJudged("long_tail", f"{count:.0f} answers of {model}; {MIN_FIRST_TOKENS} are needed")
        elif count:
            buckets = seen.grown.by("le", f"{name}_bucket", model=model)
            half, most = quantile(buckets, 0.5), quantile(buckets, 0.99)
            if most >= TAIL_RATIO * half and most - half >= TAIL_S:
                waiting = mean(seen.gauge("nv_trt_llm_request_metrics", model=model, request_type="waiting"))
                yield Finding(
                    "long_tail",
                    Weight.SLOW,
                    model,
                    f"first token: p50 {half * 1000:.0f} ms, p99 {most * 1000:.0f} ms, of {count:.0f} answers",
                    f"some waited in the engine: {waiting:.1f} on average"
                    if waiting >= 1
                    else "most are quick, but some are held up by long prompts beside them, a batch that runs to "
                    "its end, or a busy process",
                    seen.file(model),
                    "enable_chunked_context, max_num_tokens",
                    "true, and smaller steps; an in-flight gpt_model_type; long prompts to the large engine "
                    f"(SMALL_MAX_PROMPT_TOKENS in {POLICY}); urgent requests with priority 1",
                )
