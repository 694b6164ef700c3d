"""Rules on what waits before a model: queues, delays, batches, and how many instances there are to serve them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bls.contract import POSTPROCESSING, PREPROCESSING, ROUTER, SENSITIVE_WORDS, TEXT_TOKENIZER
from bls.routing.admission import Places
from scripts.diagnosis.finding import Finding, NotJudged, Weight
from scripts.diagnosis.sample import Counts, Model, Observation, mean
from scripts.host.footprint import ROUTER_PROCESS_MB, TOKENIZER_PROCESS_MB
from scripts.host.preflight import SHM_MIB_PER_INSTANCE

MIN_LOOKS = 5  # of a gauge, before it says anything
MIN_EXECUTIONS = 30  # or requests, for their mean wait
GROWTH = 10  # requests more than at the start before a queue counts as growing
LONG_DELAY_US = 100_000  # a tenth of a second in every answer
ALONE = 1.1  # the mean batch up to which requests go alone
BUSY = 0.8  # the share of its time that an instance may work before requests wait for it
WANTED_BUSY = 0.6  # what new instances are to bring it to
STALL_MS = 100.0
MIN_TURNED_AWAY = 10
TOKENIZERS = (PREPROCESSING, POSTPROCESSING, TEXT_TOKENIZER, SENSITIVE_WORDS)

Found = Iterator[Finding | NotJudged]
_DELAY = "dynamic_batching.max_queue_delay_microseconds"


def queue_growing(seen: Observation) -> Found:
    """More requests come than are answered."""
    for model in sorted(seen.models):
        waiting = seen.pending(model)
        third = len(waiting) // 3
        if waiting and waiting[-1] >= waiting[0] + GROWTH:
            if len(waiting) < MIN_LOOKS:
                yield NotJudged("queue_growing", f"{len(waiting)} readings of the queues; {MIN_LOOKS} are needed")
            elif min(waiting[-third:]) > max(waiting[:third]):
                rate = (waiting[-1] - waiting[0]) / seen.seconds
                places = seen.models[model].queue_places
                full = (
                    f"; it will be full in {max(0.0, places - waiting[-1]) / rate:.0f} s"
                    if places
                    else "; it has no limit"
                )
                yield Finding(
                    "queue_growing",
                    Weight.FAILING,
                    model,
                    f"{waiting[0]:.0f} -> {waiting[-1]:.0f} requests waited, {rate:.1f} more each second{full}",
                    "requests come faster than they are answered, so each waits longer than the one before",
                    seen.file(model),
                    "instance_group.count, dynamic_batching.default_queue_policy.max_queue_size",
                    "more instances if too_few_routers or too_few_tokenizers says so; otherwise the engines are "
                    "at their limit: send less, or refuse sooner with a lower max_queue_size",
                )


def queue_full(seen: Observation) -> Found:
    """Requests are refused at once, which no metric of Triton counts."""
    for name, model in sorted(seen.models.items()):
        waiting = seen.pending(name)
        full = sum(value >= model.max_queue_size for value in waiting) if model.max_queue_size else 0
        if full:
            yield Finding(
                "queue_full",
                Weight.FAILING,
                name,
                f"{max(waiting):.0f} requests waited in {full} of {len(waiting)} readings; "
                f"{model.max_queue_size} of each priority may",
                "further ones are refused as UNAVAILABLE, 'Exceeds maximum queue size'; no metric counts those",
                seen.file(name),
                "dynamic_batching.default_queue_policy.max_queue_size",
                "serve faster first (queue_growing); make it larger only if bursts are short, since each place "
                "adds waiting",
            )


def rejections(seen: Observation) -> Found:
    """Requests that waited longer than they may."""
    by_model = seen.grown.by("model", "nv_inference_request_failure", reason="REJECTED")
    for model, count in sorted(by_model.items()):
        if count:
            config = seen.models.get(model)
            limit = f" of {config.queue_timeout_us / 1e6:g} s" if config and config.queue_timeout_us else ""
            yield Finding(
                "rejections",
                Weight.FAILING,
                model,
                f"{count:.0f} requests were rejected because their queue timeout{limit} had passed",
                "they waited until Triton gave up on them, or their clients set a short `timeout`",
                seen.file(model),
                "dynamic_batching.default_queue_policy.default_timeout_microseconds",
                "serve faster first (queue_growing, too_few_routers); a longer timeout only makes them wait longer",
            )


def queue_delay_long(seen: Observation) -> Found:
    """A delay that is longer than anything that batching can win."""
    for name, model in sorted(seen.models.items()):
        if model.queue_delay_us > LONG_DELAY_US:
            yield Finding(
                "queue_delay_long",
                Weight.SLOW,
                name,
                f"{model.queue_delay_us / 1e6:g} s",
                "a request that comes alone waits for all of it; seconds gain nothing, whatever an article says",
                seen.file(name),
                _DELAY,
                "0 for an engine that batches in flight, otherwise 100 to 5000",
            )


def queue_delay_useless(seen: Observation) -> Found:
    """Requests wait for company that doesn't come."""
    for name, model in sorted(seen.models.items()):
        did = seen.counted(name)
        if not model.queue_delay_us or not did.executions:
            continue
        if did.executions < MIN_EXECUTIONS:
            yield _too_few("queue_delay_useless", name, did)
        elif did.mean_batch < ALONE:
            yield Finding(
                "queue_delay_useless",
                Weight.SLOW,
                name,
                f"{did.requests} requests in {did.executions} batches; each waited for {did.mean_wait_ms:.1f} ms, "
                f"the delay is {model.queue_delay_us / 1000:g} ms",
                "the batcher holds each request back for others, but then sends it alone all the same",
                seen.file(name),
                _DELAY,
                "0: requests that come while the instances are busy are batched anyway",
            )


def batches_of_one(seen: Observation) -> Found:
    """Requests wait, and are computed one by one although the model takes batches."""
    for name, model in sorted(seen.models.items()):
        did = seen.counted(name)
        if model.max_batch_size <= 1 or model.backend == "ensemble" or not did.executions:
            continue
        waited_ms = did.mean_wait_ms - model.queue_delay_us / 1000
        if did.executions < MIN_EXECUTIONS:
            yield _too_few("batches_of_one", name, did)
        elif did.mean_batch < ALONE and waited_ms > max(5.0, did.mean_execution_ms):
            ragged = "true for each input whose shape varies; requests with other optional inputs never share a batch"
            key, change = "dynamic_batching", "add `dynamic_batching { }`: without it there are no batches"
            if model.has_batcher:
                key, change = "input.allow_ragged_batch", ragged
            yield Finding(
                "batches_of_one",
                Weight.SLOW,
                name,
                f"{did.requests} requests in {did.executions} executions of {did.mean_execution_ms:.1f} ms, "
                f"each waited {did.mean_wait_ms:.1f} ms; up to {model.max_batch_size} could share one",
                "requests queue for a model that could compute them together",
                seen.file(name),
                key,
                change,
            )


def single_instance_stalls(seen: Observation) -> Found:
    """One instance behind the dynamic batcher: Triton 2.51 lets requests wait though the instance is free."""
    for name, model in sorted(seen.models.items()):
        did = seen.counted(name)
        if not model.has_batcher or model.instances != 1 or model.backend != "python" or not did.executions:
            continue
        waited_ms = did.mean_wait_ms - model.queue_delay_us / 1000
        busy = busy_share(did, model, seen)
        if did.requests < MIN_EXECUTIONS:
            yield _too_few("single_instance_stalls", name, did)
        elif waited_ms > STALL_MS and busy < BUSY:
            key, change = "instance_group.count", "2, or no dynamic_batching if the model batches by itself"
            if model.has_limited_queue:
                key = "dynamic_batching.default_queue_policy"
                change = (
                    "no size, timeout or priorities if the number of callers is limited; otherwise "
                    "instance_group.count 2"
                )
            yield Finding(
                "single_instance_stalls",
                Weight.SLOW,
                name,
                f"requests waited {did.mean_wait_ms:.0f} ms for an instance that was busy {busy:.0%} of the time",
                "behind a limited queue Triton 2.51 may notice half a second late that an instance is free",
                seen.file(name),
                key,
                change,
            )


def too_few_tokenizers(seen: Observation) -> Found:
    """Tokenizers and detokenizers that have no time left."""
    for name in TOKENIZERS:
        model, did = seen.models.get(name), seen.counted(name)
        if model is None or not did.executions:
            continue
        busy = busy_share(did, model, seen)
        if did.requests < MIN_EXECUTIONS:
            yield _too_few("too_few_tokenizers", name, did)
        elif busy >= BUSY and did.mean_wait_ms > 5.0:
            wanted = max(model.instances + 1, math.ceil(model.instances * busy / WANTED_BUSY))
            cores = seen.last.machine.cores if seen.last.machine else None
            yield Finding(
                "too_few_tokenizers",
                Weight.SLOW,
                name,
                f"{model.instances} instances were busy {busy:.0%} of the time, and requests waited "
                f"{did.mean_wait_ms:.0f} ms for {did.mean_execution_ms:.1f} ms of work",
                "prompts wait for a tokenizer before any engine sees them",
                seen.file(name),
                "instance_group.count",
                f"{wanted}, {TOKENIZER_PROCESS_MB} MB each"
                + (f"; this machine has {cores:g} cores, and more only wait for each other" if cores else ""),
            )


def too_few_routers(seen: Observation) -> Found:
    """Every router process that may have a request has one, and others wait or are turned away."""
    model, waiting = seen.models.get(ROUTER), seen.pending(ROUTER)
    in_flight = seen.gauge("llm_router_requests_in_flight")
    if model is None or not in_flight or not waiting:
        return
    places = Places(model.instances)
    turned_away = _turned_away(seen) if places.free else 0.0
    held_up = sum(
        busy >= places.all and (queued >= 1 or turned_away >= MIN_TURNED_AWAY)
        for busy, queued in zip(in_flight, waiting, strict=True)
    )
    if held_up and len(waiting) < MIN_LOOKS:
        yield NotJudged("too_few_routers", f"{len(waiting)} readings of the router's queue; {MIN_LOOKS} are needed")
    elif held_up >= len(waiting) / 2:
        more = math.ceil(model.instances / 4 if places.free else mean(waiting))
        others = f"{turned_away:.0f} were turned away" if turned_away else f"{mean(waiting):.0f} requests waited (mean)"
        yield Finding(
            "too_few_routers",
            Weight.SLOW,
            ROUTER,
            f"all {places.all} places of {model.instances} processes were taken and {others}",
            "a process answers one request at a time, so no more can stream at once than there are processes",
            seen.file(ROUTER),
            "instance_group.count",
            f"{model.instances + more}, which takes another {ROUTER_PROCESS_MB * more} MB of memory and "
            f"{SHM_MIB_PER_INSTANCE * more} MB of /dev/shm; no more than the engines can compute at the same time",
        )


def _turned_away(seen: Observation) -> float:
    return sum(value for _, value in seen.grown.select("llm_router_requests_total", finish="busy"))


def busy_share(did: Counts, model: Model, seen: Observation) -> float:
    """Of their time, how much the model's instances worked; an execution counts when it ends."""
    return did.busy_us / 1e6 / (seen.seconds * model.instances)


def _too_few(rule: str, model: str, did: Counts) -> NotJudged:
    return NotJudged(
        rule, f"{did.requests} requests to {model} in {did.executions} batches; {MIN_EXECUTIONS} are needed"
    )
