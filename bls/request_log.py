"""What the log and the metrics say of a request: never its text."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bls.ports import Metrics
from bls.routing.policy_file import POLICY_ERROR
from bls.routing.route import Route
from bls.safety.settings import ALLOW, CHECK_NAMES

REQUESTS = "llm_router_requests_total"
FINISHES = "llm_router_finishes_total"
IN_FLIGHT = "llm_router_requests_in_flight"
FIRST_TOKEN = "llm_router_time_to_first_token_seconds"
INPUT_TOKENS = "llm_router_input_tokens_total"
OUTPUT_TOKENS = "llm_router_output_tokens_total"
VERDICTS = "llm_router_prompt_verdicts_total"
FAILED_CHECKS = "llm_router_prompt_check_failures_total"
FILTER_HITS = "llm_router_filter_hits_total"
TOKENS_SAVED = "llm_router_filter_tokens_saved_total"
POLICY_ERRORS = "llm_router_policy_errors_total"
EARLY_STARTS_UNDONE = "llm_router_early_starts_undone_total"
EARLY_TOKENS = "llm_router_early_start_tokens_total"
COST = "llm_router_cost_total"
BASELINE_COST = "llm_router_baseline_cost_total"
FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


_MOST_LINES = 5  # of lists, in one line of the log

# All that a request may end with: why its answer ended, or the class of its error.
_ENDS = ("stop", "length", "stop_word", "bad_word", "filtered", "refused", "timeout", "cancelled", "engine_error")
_ERRORS = ("bad_request", "busy", "unavailable", "internal")


def declare(metrics: Metrics, models: Sequence[str] = ()) -> None:
    """Of what an alert reads, each series is there as 0 from the start: its first burst would raise nothing else."""
    metrics.declare(REQUESTS, "COUNTER", "Requests that ended, by engine model, reason and finish")
    metrics.declare(FINISHES, "COUNTER", "Requests that ended, by finish")
    for finish in (*_ENDS, *_ERRORS):
        metrics.add(FINISHES, 0, finish=finish)
    metrics.declare(IN_FLIGHT, "GAUGE", "Requests being answered")
    metrics.declare(FIRST_TOKEN, "HISTOGRAM", "Seconds from dispatch to the first token", FIRST_TOKEN_BUCKETS)
    for model in models:
        metrics.show(FIRST_TOKEN, model=model)
    metrics.declare(INPUT_TOKENS, "COUNTER", "Prompt tokens by engine model")
    metrics.declare(OUTPUT_TOKENS, "COUNTER", "Generated tokens by engine model")
    declare_verdicts(metrics)
    metrics.declare(FILTER_HITS, "COUNTER", "Sensitive words and personal data in answers, by category and action")
    metrics.declare(TOKENS_SAVED, "COUNTER", "Tokens that an engine was still allowed when the word filter stopped it")
    metrics.declare(
        POLICY_ERRORS, "COUNTER", "Requests on which the policy raised or stalled; its default answered them"
    )
    metrics.declare(COST, "COUNTER", "Cost of the tokens by the policy's prices, by engine model")
    metrics.declare(BASELINE_COST, "COUNTER", "Cost of the tokens if the policy's BASELINE had answered everything")
    metrics.declare(
        EARLY_STARTS_UNDONE, "COUNTER", "Engines stopped because the classifier refused the prompt or sent it elsewhere"
    )
    metrics.declare(EARLY_TOKENS, "COUNTER", "Tokens that had come of those by then, which nobody saw")
    for outcome in ("refused", "rerouted"):
        metrics.add(EARLY_STARTS_UNDONE, 0, outcome=outcome)
    metrics.add(EARLY_TOKENS, 0)
    metrics.add(POLICY_ERRORS, 0)
    metrics.add(IN_FLIGHT, 0)  # Shown as 0 before the first request.


def declare_verdicts(metrics: Metrics) -> None:
    metrics.declare(VERDICTS, "COUNTER", "Prompts judged before any engine, by action and reason")
    metrics.declare(FAILED_CHECKS, "COUNTER", "Checks of a prompt that could not decide, by check")
    metrics.add(VERDICTS, 0, action=ALLOW, reason="clean")
    for check in CHECK_NAMES.values():
        metrics.add(FAILED_CHECKS, 0, check=check)


def count_verdict(metrics: Metrics, action: str, reason: str, failed_checks: Sequence[str]) -> None:
    metrics.add(VERDICTS, action=action, reason=reason)
    for check in failed_checks:
        metrics.add(FAILED_CHECKS, check=check)


@dataclass
class RequestRecord:
    """One request; "none" for a model and a reason until the policy has decided."""

    request_id: str
    model: str = "none"
    reason: str = "none"
    finish: str = "internal"
    input_tokens: int = 0
    output_tokens: int = 0
    first_token_seconds: float | None = None
    verdict: str = "-"  # action and reason, with a colon between
    failed_checks: Sequence[str] = ()
    words_version: str = "-"
    filter_hits: Sequence[tuple[str, str, int]] = ()  # category, action, matches
    filter_lines: Sequence[str] = ()  # of the lists, that these were found by
    prompt_lines: Sequence[str] = ()  # that the prompt was refused, masked or sent another way by
    tokens_saved: int = 0
    route: Route | None = None  # None until the policy has decided
    pieces: int = 0  # of the answer that have gone out, its last one not counted
    is_broken: bool = False  # the engine broke after some had
    started: float = field(default_factory=time.monotonic)

    def count(self, tokens: int) -> None:
        """Notes new tokens, and the time of the first."""
        if self.first_token_seconds is None and tokens:
            self.first_token_seconds = time.monotonic() - self.started
        self.output_tokens += tokens

    def outcome(self) -> dict[str, object]:
        """What the log of decisions says came of one."""
        first = self.first_token_seconds
        return {
            "model": self.model,
            "reason": self.reason,
            "finish": self.finish,
            "output_tokens": self.output_tokens,
            "first_token_ms": None if first is None else round(first * 1000, 1),
        }

    def report(self, metrics: Metrics) -> None:
        """One log line, and the metrics."""
        first = "-" if self.first_token_seconds is None else f"{self.first_token_seconds * 1000:.1f}"
        hits = ",".join(f"{category}:{count}" for category, _, count in self.filter_hits) or "-"
        logging.info(
            f"request id={self.request_id[:64]!r} model={self.model} reason={self.reason} finish={self.finish}"
            f" input_tokens={self.input_tokens} output_tokens={self.output_tokens}"
            f" policy={_decided_at(self.route)} verdict={self.verdict} words={self.words_version} filter_hits={hits}"
            f" filter_lines={_first(self.filter_lines)} prompt_lines={_first(self.prompt_lines)}"
            f" first_token_ms={first} total_ms={(time.monotonic() - self.started) * 1000:.1f}"
        )
        metrics.add(REQUESTS, model=self.model, reason=self.reason, finish=self.finish)
        metrics.add(FINISHES, finish=self.finish)
        if self.verdict != "-":
            action, reason = self.verdict.split(":")
            count_verdict(metrics, action, reason, self.failed_checks)
        for category, action, count in self.filter_hits:
            metrics.add(FILTER_HITS, count, category=category, action=action)
        if self.tokens_saved:
            metrics.add(TOKENS_SAVED, self.tokens_saved, model=self.model)
        if self.model != "none":
            metrics.add(INPUT_TOKENS, self.input_tokens, model=self.model)
            metrics.add(OUTPUT_TOKENS, self.output_tokens, model=self.model)
        if self.first_token_seconds is not None:
            metrics.observe(FIRST_TOKEN, self.first_token_seconds, model=self.model)
        if self.route is not None:
            self._report_route(self.route, metrics)

    def _report_route(self, route: Route, metrics: Metrics) -> None:
        """Costs against one model answering everything, and decisions that were none."""
        settings = route.policy.settings
        if route.made.reason == POLICY_ERROR:
            metrics.add(POLICY_ERRORS)
        if self.model == "none":
            return
        baseline_tokens = route.prompt.tokens[settings.baseline]
        if tier := settings.tier(self.model):
            metrics.add(COST, tier.cost(self.input_tokens, self.output_tokens), model=self.model)
        if tier := settings.tier(settings.baseline):
            metrics.add(BASELINE_COST, tier.cost(baseline_tokens, self.output_tokens))


def _first(lines: Sequence[str]) -> str:
    """Some lines of lists: the word of each is to be looked up there, and not in a log."""
    return ",".join([*lines[:_MOST_LINES], *(["..."] if len(lines) > _MOST_LINES else [])]) or "-"


def _decided_at(route: Route | None) -> str:
    """The policy's version and the line that decided."""
    return "-" if route is None else f"{route.policy.version}:{route.made.line}"
