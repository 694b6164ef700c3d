"""Rules on the figures themselves: clocks, counters and metrics that mislead a dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from scripts.diagnosis.finding import Finding, Weight
from scripts.diagnosis.rules_engines import REQUESTS, engines
from scripts.diagnosis.rules_queues import MIN_LOOKS
from scripts.diagnosis.sample import Observation, Sample

CLOCK_S = 3.0  # the skew from which on dashboards show the wrong moment
STAMP = "nv_trt_llm_general_metrics"


def clock_skew(seen: Observation) -> Iterator[Finding]:
    """The server's clock and this machine's are not the same, so its timestamps stand in the wrong place."""
    skew_s = max((_skew(*pair) for pair in pairwise(seen.samples)), key=abs, default=0.0)
    if abs(skew_s) > CLOCK_S:
        hours = round(skew_s / 3600)
        is_hours = hours and abs(skew_s - hours * 3600) < 60
        yield Finding(
            "clock_skew",
            Weight.NOTE,
            "clock",
            f"the server's timestamps are {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine",
            "dashboards show events at the wrong time, and logs of the two machines can't be compared"
            + (
                "; a whole hour is TensorRT-LLM's timestamp before release 26.04 under daylight saving time"
                if is_hours
                else ""
            ),
            "-",
            "-",
            "use NTP on both machines (timedatectl status)",
        )


def metrics_frozen(seen: Observation) -> Iterator[Finding]:
    """The metrics page stands still while the server answers."""
    name = "nv_inference_count"
    page = {model for model, count in seen.grown.by("model", name).items() if count}
    moved = {model for model in seen.last.counts if seen.counted(model).requests >= MIN_LOOKS}
    active = {model: seen.gauge(REQUESTS, model=model, request_type="active") for model in engines(seen)}
    busy = [model for model, values in active.items() if min(values, default=0) > 0]
    stamps = {model: _stamps(seen, model) for model in busy}
    stale = {model for model, values in stamps.items() if len(values) >= MIN_LOOKS and len(set(values)) == 1}
    if (moved and not page & moved) or stale:
        model = min(stale or moved)
        yield Finding(
            "metrics_frozen",
            Weight.NOTE,
            model,
            f"TensorRT-LLM's timestamp did not move in {seen.seconds:.0f} s with requests active"
            if stale
            else f"{seen.counted(model).requests} requests according to /v2/models/stats, none according to the "
            "metrics page",
            "dashboards show the past: the page belongs to another server or is a proxy's copy, or its thread is dead",
            seen.file(model),
            "stats_check_period_ms" if stale else "--metrics-port",
            "use this server's metrics port; if it is the right one already, restart the server",
        )


def counters_reset(seen: Observation) -> Iterator[Finding]:
    """Counters that began anew, as they do when a model is loaded again."""
    reset, known = set(), dict(seen.first.counts)
    for sample in seen.samples:
        # While a model is away it isn't counted at all.
        reset |= {model for model, now in sample.counts.items() if now.requests < known.get(model, now).requests}
        known |= sample.counts
    if reset:
        yield Finding(
            "counters_reset",
            Weight.NOTE,
            ", ".join(sorted(reset)),
            "its counters fell",
            "the model was reloaded (by hand, or by scripts/serve because a process died), or the server restarted",
            "-",
            "-",
            "in dashboards, use rate() and increase(), which allow for it, never the counter itself or a difference",
        )


def _skew(earlier: Sample, later: Sample) -> float:
    """By how many seconds what the server timed between two looks lies outside of them."""
    found = [
        last
        for model, last in later.last_inference_s.items()
        if later.counts[model].requests > earlier.counts.get(model, later.counts[model]).requests
    ]
    for labels, micros in later.page.select(STAMP, general_type="timestamp"):
        if earlier.page.get(STAMP, **labels) != micros:
            found.append(micros / 1e6)
    outside = [min(0.0, at - earlier.unix_s) + max(0.0, at - later.unix_s) for at in found]
    return max(outside, key=abs, default=0.0)


def _stamps(seen: Observation, model: str) -> list[float]:
    return seen.gauge(STAMP, model=model, general_type="timestamp")
