"""What the tests of the doctor's rules share: a server as it was seen, made of a few figures."""

from __future__ import annotations

from bls import request_log
from bls.contract import PREPROCESSING, ROUTER
from bls.tiers import engine_models
from scripts.diagnosis.metrics_page import parse
from scripts.diagnosis.rules import judge
from scripts.diagnosis.sample import Counts, Machine, Observation, Sample

GIB, MIB = 2**30, 2**20
READY = dict.fromkeys((ROUTER, *engine_models(), PREPROCESSING, "engine_control"), ("READY", ""))
MACHINE = Machine(4, 0.0, 16 * GIB, 8 * GIB, 1024 * MIB, 900 * MIB, 0, {})
PENDING = 'nv_inference_pending_request_count{model="%s"}'
IN_FLIGHT = request_log.IN_FLIGHT


def observed(
    series=None,
    *,
    looks=8,
    models=(),
    counts=None,
    states=None,
    machines=None,
    last_s=None,
    log=(),
    before=(),
):
    """Looks a second apart. `series`: a list has one value for each look, a number is the same at all of them, a pair
    is what a counter shows first and last. `counts`: first and last of each model."""
    states = states or {each.name: ("READY", "") for each in models}
    samples = []
    for look in range(looks):
        counted = {model: pair[0 if look == 0 else 1] for model, pair in (counts or {}).items()}
        shown = {f'nv_inference_count{{model="{model}"}}': each.requests for model, each in counted.items()}
        lines = [f"{name} {_at(value, look, looks)}" for name, value in {**shown, **(series or {})}.items()]
        machine = machines[look] if machines else None
        last = last_s[look] if last_s else {}
        samples.append(Sample(look, 1000.0 + look, parse("\n".join(lines)), states, counted, last, machine))
    return Observation(
        tuple(samples), {each.name: each for each in models}, {}, before, log, has_log=bool(log or before)
    )


def _at(value, look, looks):
    if isinstance(value, list):
        return value[look]
    if isinstance(value, tuple):
        return value[0] if look == 0 else value[1]
    return value


def names(seen):
    return [finding.name for finding in judge(seen)[0]]


def finding(seen, name):
    (only,) = [each for each in judge(seen)[0] if each.name == name]
    return only


def unsure(seen):
    return {each.name for each in judge(seen)[1]}


def did(requests, executions=None, wait_ms=0.0, work_ms=1.0):
    executions = requests if executions is None else executions
    return Counts(), Counts(requests, executions, requests * wait_ms * 1000, executions * work_ms * 1000)
