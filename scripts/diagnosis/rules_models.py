"""Rules on the models themselves: loaded, alive, without errors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bls.contract import ENGINE_CONTROL, PREPROCESSING, ROUTER, TEXT_PIPELINE
from bls.tiers import engine_models
from scripts.diagnosis.finding import Finding, Weight
from scripts.diagnosis.sample import Observation

UNAVAILABLE = "UNAVAILABLE"
NEVER_LOADED = "never loaded"  # where the index says no state
# What llm_router calls; the classifier's models too where the policy has that check, which prompt_check_fails tells.
ROUTER_CHILDREN = (PREPROCESSING, *engine_models(), ENGINE_CONTROL)
MIN_ERRORS = 5  # fewer may be one client's mistakes
ERROR_SHARE = 0.05

_UNHEALTHY = re.compile(r"Stub process '(\S+?)_\d+_\d+' is not healthy")


def child_not_ready(seen: Observation) -> Iterator[Finding]:
    """The router is ready, but a model that it calls isn't: Triton's own readiness doesn't look at those."""
    for child in ROUTER_CHILDREN if seen.last.is_ready(ROUTER) else ():
        state, reason = seen.last.states.get(child, ("not in the model repository", ""))
        if not seen.last.is_ready(child):
            yield Finding(
                "child_not_ready",
                Weight.FAILING,
                child,
                f"{state}{f': {_line(reason)}' if reason else ''}, while {ROUTER} is ready",
                "requests that need it fail or go to a fallback; readiness says nothing about the models that a "
                "model calls",
                seen.file(child),
                "-",
                f"POST /v2/repository/models/{child}/load, after correcting what the reason names",
            )


def model_failed_to_load(seen: Observation) -> Iterator[Finding]:
    """Another model could not be loaded, or somebody has unloaded it."""
    told = ROUTER_CHILDREN if seen.last.is_ready(ROUTER) else ()
    for model, (state, reason) in seen.last.states.items():
        if state == UNAVAILABLE and model not in told:
            is_on_purpose = reason in ("", "unloaded")
            yield Finding(
                "model_unloaded" if is_on_purpose else "model_failed_to_load",
                Weight.NOTE if is_on_purpose else Weight.FAILING,
                model,
                _line(reason) or "unloaded",
                "it answers no requests, and makes /v2/health/ready say no (unless --strict-readiness=false)"
                + (
                    "; an ensemble goes away with the first of its models, and comes back with it"
                    if is_on_purpose
                    else ""
                ),
                seen.file(model),
                "-",
                f"{'' if is_on_purpose else 'correct what the reason names, then '}"
                f"POST /v2/repository/models/{model}/load",
            )


def classifier_left_out(seen: Observation) -> Iterator[Finding]:
    """The router serves, and its classifier was never loaded: left out at the start, by choice or as it is broken."""
    if seen.last.is_ready(ROUTER) and seen.last.states.get(TEXT_PIPELINE, ("", ""))[0] == NEVER_LOADED:
        yield Finding(
            "classifier_left_out",
            Weight.NOTE,
            TEXT_PIPELINE,
            NEVER_LOADED,
            "prompts are judged without the classifier, as the policy says of a check that can't decide (on_failure)",
            "engines/built/classifier",
            "-",
            "scripts/serve said at its start whether it, or a model of it, failed to load, and why; "
            "python -m scripts.build_engines classifier makes it anew; --skip-model leaves it out on purpose",
        )


def stub_dead(seen: Observation) -> Iterator[Finding]:
    """A process of a python model is gone. The backend starts none anew, and the model stays ready."""
    missing = _missing_stubs(seen)
    unhealthy = {found[1] for line in seen.log_during for found in _UNHEALTHY.finditer(line)}
    for model in sorted(missing.keys() | unhealthy):
        if model in missing:
            lost, instances = missing[model], seen.models[model].instances
            figure = f"{instances - lost} of {instances} processes are alive"
        else:
            figure = "the log says that a process is not healthy"
        yield Finding(
            "stub_dead",
            Weight.FAILING,
            model,
            figure,
            "requests to the dead process fail after a second, streams never end, and the model stays ready",
            seen.file(model),
            "-",
            f"scripts/serve replaces it by itself; elsewhere, POST .../models/{model}/load with a changed config (no "
            "unload, which may never end); see dmesg and out_of_memory for why it died",
        )


def old_processes(seen: Observation) -> Iterator[Finding]:
    """Processes beyond a model's instances that don't get fewer: Triton 2.51 can't end those of some reloads."""
    looks = [sample.machine.stubs for sample in seen.samples if sample.machine]
    for name, model in sorted(seen.models.items()):
        surplus = [look.get(name, 0) - model.instances for look in looks]
        if model.backend != "python" or len(surplus) < 2 or min(surplus) <= 0 or surplus[-1] < surplus[0]:
            continue
        yield Finding(
            "old_processes",
            Weight.NOTE,
            name,
            f"{surplus[-1]} processes beyond its {model.instances} instances live on",
            "a client cancelled its gRPC stream in the moment of its last response, so Triton never ends what was "
            "replaced by a reload; each holds its memory and a part of /dev/shm",
            seen.file(name),
            "-",
            "scripts/serve --replace starts a new server without losing a request (scripts/serve does it by itself "
            "beyond 64); let clients end a complete stream by half-close instead of by cancel",
        )


def backend_errors(seen: Observation) -> Iterator[Finding]:
    """Requests that a model, or its backend, answered with an error."""
    name = "nv_inference_request_failure"
    for model in sorted(seen.last.states):
        failed = sum(seen.grown.get(name, model=model, reason=why) or 0 for why in ("BACKEND", "OTHER"))
        answered = seen.grown.get("nv_inference_request_success", model=model) or 0
        if failed >= MIN_ERRORS and failed >= ERROR_SHARE * (failed + answered):
            errors = [line for line in seen.log_during if line.startswith("E")]
            yield Finding(
                "backend_errors",
                Weight.FAILING,
                model,
                f"{failed:.0f} of {failed + answered:.0f} requests failed"
                + (f"; the log's last error: {_line(errors[-1])}" if errors else ""),
                "the model itself answers with errors; this does not include decoupled models (llm_router, the "
                "engines), whose errors Triton counts as successes: see requests_fail",
                seen.file(model),
                "-",
                "see the reason in the server's log (give --log FILE if it isn't shown here)",
            )


def _missing_stubs(seen: Observation) -> dict[str, int]:
    """By model, the most processes that it lacked at one look while it was ready at the next look too (the one before,
    for the last): one that is being unloaded loses its processes as it should."""
    missing: dict[str, int] = {}
    for place, sample in enumerate(seen.samples):
        neighbour = seen.samples[place + 1 if place + 1 < len(seen.samples) else place - 1]
        for name, model in seen.models.items():
            if model.backend != "python" or sample.machine is None:
                continue
            lacks = model.instances - sample.machine.stubs.get(name, 0)
            if lacks > 0 and sample.is_ready(name) and neighbour.is_ready(name):
                missing[name] = max(lacks, missing.get(name, 0))
    return missing


def _line(text: str) -> str:
    return text.split("\\n", 1)[0].splitlines()[0][:200] if text else ""
