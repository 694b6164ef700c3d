"""Each rule of the doctor: what provokes it, what just doesn't, and how little is too little to judge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls import policy_service, record
from bls.contract import LARGE, PREPROCESSING, ROUTER, SMALL
from scripts import doctor_rules
from scripts.doctor_finding import Finding, NotJudged, Weight
from scripts.doctor_rules import RULES, judge
from scripts.doctor_sample import Counts, Machine, Model, Observation, Sample
from scripts.environment import ROOT
from scripts.metrics_page import parse

GIB, MIB = 2**30, 2**20
MACHINE = Machine(4, 0.0, 16 * GIB, 8 * GIB, 1024 * MIB, 900 * MIB, 0, {})
PENDING = 'nv_inference_pending_request_count{model="%s"}'
IN_FLIGHT = record.IN_FLIGHT


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


# Queues


def test_a_queue_that_grows_is_told_with_the_time_that_is_left():
    router = Model(ROUTER, max_queue_size=50, priority_levels=2)
    seen = observed({PENDING % ROUTER: [0, 5, 10, 15, 20, 25, 30, 35]}, models=[router])
    assert finding(seen, "queue_growing").figure == "0 -> 35 requests wait, 5.0 more each second; full in 13 s"


@pytest.mark.parametrize(
    "waiting", [[30] * 8, [35, 30, 25, 20, 15, 10, 5, 0], [0, 1, 2, 3, 4, 5, 6, 9], [0, 30, 0, 30, 0, 30, 0, 30]]
)
def test_a_queue_that_is_long_shrinks_or_comes_and_goes_does_not_grow(waiting):
    assert "queue_growing" not in names(observed({PENDING % ROUTER: waiting}, models=[Model(ROUTER)]))


@given(st.lists(st.integers(0, 40), min_size=6, max_size=12))
def test_no_queue_grows_that_ends_no_longer_than_it_began(waiting):
    waiting[-1] = min(waiting)
    assert "queue_growing" not in names(observed({PENDING % "a": waiting}, looks=len(waiting), models=[Model("a")]))


def test_a_queue_at_its_limit_refuses_unseen():
    small = Model(SMALL, max_queue_size=16)
    assert finding(observed({PENDING % SMALL: [3, 16, 2]}, looks=3, models=[small]), "queue_full").subject == SMALL
    assert names(observed({PENDING % SMALL: [3, 15, 2]}, looks=3, models=[small])) == []
    assert names(observed({PENDING % SMALL: [3, 999, 2]}, looks=3, models=[replace(small, max_queue_size=0)])) == []


def test_requests_whose_queue_timeout_ran_out_are_told_with_it():
    series = {f'nv_inference_request_failure{{model="{ROUTER}",reason="REJECTED"}}': (2, 5)}
    seen = observed(series, models=[Model(ROUTER, queue_timeout_us=30_000_000)])
    assert finding(seen, "rejections").figure == "3 requests rejected, their queue timeout of 30 s had run out"


@pytest.mark.parametrize(("delay_us", "said"), [(200_000_000, True), (100_001, True), (100_000, False), (0, False)])
def test_a_delay_of_more_than_a_tenth_of_a_second_is_too_long(delay_us, said):
    assert ("queue_delay_long" in names(observed(models=[Model(SMALL, queue_delay_us=delay_us)]))) == said


@pytest.mark.parametrize(
    ("delay_us", "requests", "executions", "said"),
    [(5000, 60, 60, True), (5000, 60, 55, True), (5000, 66, 60, False), (5000, 240, 60, False), (0, 60, 60, False)],
)
def test_a_delay_that_brings_no_company_is_useless(delay_us, requests, executions, said):
    model = Model("a", max_batch_size=8, has_batcher=True, queue_delay_us=delay_us)
    seen = observed(models=[model], counts={"a": did(requests, executions, wait_ms=delay_us / 1000)})
    assert ("queue_delay_useless" in names(seen)) == said


def test_too_few_executions_judge_no_delay_and_no_batch():
    model = Model("a", max_batch_size=8, has_batcher=True, queue_delay_us=5000)
    seen = observed(models=[model], counts={"a": did(29, wait_ms=500)})
    assert names(seen) == [] and {"queue_delay_useless", "batches_of_one"} <= unsure(seen)
    assert unsure(observed(models=[model], counts={"a": did(0)})) == set()


@pytest.mark.parametrize(
    ("batcher", "size", "requests", "wait_ms", "key"),
    [
        (False, 8, 40, 30, "dynamic_batching"),
        (True, 8, 40, 30, "input.allow_ragged_batch"),
        (True, 8, 40, 20, None),  # as long as an execution takes: the one before it
        (True, 8, 80, 30, None),  # in twos
        (False, 1, 40, 30, None),  # it takes no batches
    ],
)
def test_requests_that_wait_for_a_model_that_could_batch_them(batcher, size, requests, wait_ms, key):
    model = Model("a", max_batch_size=size, has_batcher=batcher, instances=2)
    seen = observed(models=[model], counts={"a": did(requests, 40, wait_ms, work_ms=20)})
    assert [each.key for each in judge(seen)[0] if each.name == "batches_of_one"] == ([key] if key else [])


@pytest.mark.parametrize(
    ("instances", "wait_ms", "work_ms", "said"),
    [(1, 101, 1, True), (1, 99, 1, False), (1, 101, 150, False), (2, 101, 1, False)],
)
def test_one_instance_that_lets_requests_wait_while_it_is_free(instances, wait_ms, work_ms, said):
    model = Model("a", max_batch_size=1, has_batcher=True, instances=instances)
    seen = observed(models=[model], counts={"a": did(40, wait_ms=wait_ms, work_ms=work_ms)})
    assert ("single_instance_stalls" in names(seen)) == said


@pytest.mark.parametrize(("work_ms", "wait_ms", "said"), [(150, 6, True), (150, 4, False), (130, 6, False)])
def test_tokenizers_that_are_always_busy_are_too_few(work_ms, wait_ms, said):
    model = Model(PREPROCESSING, max_batch_size=64, has_batcher=True, instances=1)
    seen = observed(models=[model], counts={PREPROCESSING: did(120, 40, wait_ms, work_ms)})
    assert ("too_few_tokenizers" in names(seen)) == said
    if said:
        assert finding(seen, "too_few_tokenizers").change.startswith("2, ")


@pytest.mark.parametrize(("in_flight", "waiting", "said"), [(4, 6, True), (4, 0, False), (3, 6, False)])
def test_routers_that_all_answer_while_others_wait_are_too_few(in_flight, waiting, said):
    series = {IN_FLIGHT: in_flight, PENDING % ROUTER: waiting}
    seen = observed(series, models=[Model(ROUTER, instances=4)])
    assert ("too_few_routers" in names(seen)) == said
    if said:
        assert finding(seen, "too_few_routers").change.startswith("10: about 126 MB")
    assert ("too_few_routers" in unsure(observed(series, looks=4, models=[Model(ROUTER, instances=4)]))) == said


# Models


READY = {name: ("READY", "") for name in (ROUTER, SMALL, LARGE, PREPROCESSING, "engine_control")}


def test_a_child_of_the_router_that_is_not_ready_is_told_with_its_reason():
    states = {**READY, SMALL: ("UNAVAILABLE", "no engine\\n  File ...")}
    del states[LARGE]
    findings, _ = judge(observed(states=states))
    assert [(each.name, each.subject) for each in findings] == [("child_not_ready", SMALL), ("child_not_ready", LARGE)]
    assert findings[0].figure == f"UNAVAILABLE: no engine, while {ROUTER} is ready"
    assert findings[1].figure == f"not in the model repository, while {ROUTER} is ready"


@pytest.mark.parametrize(
    ("state", "reason", "name"),
    [
        ("UNAVAILABLE", "broken", "model_failed_to_load"),
        ("UNAVAILABLE", "unloaded", "model_unloaded"),
        ("LOADING", "", None),
        ("never loaded", "", None),
    ],
)
def test_another_model_is_told_when_it_failed_or_was_unloaded(state, reason, name):
    assert names(observed(states={**READY, "a": (state, reason)})) == ([name] if name else [])


@pytest.mark.parametrize(("living", "said"), [([2, 2, 2], False), ([2, 1, 2], True), ([2, 2, 0], True)])
def test_a_python_process_that_is_missing_is_dead(living, said):
    machines = [replace(MACHINE, stubs={"a": count}) for count in living]
    seen = observed(looks=3, models=[Model("a", instances=2)], machines=machines)
    assert ("stub_dead" in names(seen)) == said


def test_a_model_that_is_being_unloaded_loses_its_processes_without_being_dead():
    machines = [replace(MACHINE, stubs={"a": count}) for count in (2, 1)]
    seen = observed(looks=2, models=[Model("a", instances=2)], machines=machines)
    away = replace(seen.samples[1], states={"a": ("UNLOADING", "")})
    assert names(replace(seen, samples=(seen.samples[0], away))) == []
    assert names(replace(seen, models={"a": Model("a", backend="onnxruntime", instances=2)})) == []


def test_the_log_tells_of_a_dead_process_on_another_machine():
    line = "E1130 03:37:38 1 x.cc:1] \"Stub process 'tensorrt_llm_small_0_0' is not healthy.\""
    assert finding(observed(log=[line]), "stub_dead").subject == SMALL
    assert names(observed(before=[line])) == []


@pytest.mark.parametrize(("failed", "said"), [((0, 6), True), ((0, 4), False), ((6, 6), False)])
def test_a_model_that_answers_with_errors(failed, said):
    series = {
        f'nv_inference_request_failure{{model="{PREPROCESSING}",reason="BACKEND"}}': failed,
        f'nv_inference_request_success{{model="{PREPROCESSING}"}}': (0, 94),
    }
    seen = observed(series, models=[Model(PREPROCESSING)], log=["E1130 1 1 x.cc:1] why"])
    assert ("backend_errors" in names(seen)) == said
    if said:
        assert "the log's last error: E1130 1 1 x.cc:1] why" in finding(seen, "backend_errors").figure


# The router


@pytest.mark.parametrize(
    ("finish", "count", "said"),
    [
        ("internal", 3, True),
        ("internal", 2, False),
        ("busy", 50, True),
        ("cancelled", 90, False),
        ("refused", 90, False),
    ],
)
def test_requests_that_fail_are_told_by_how_they_ended(finish, count, said):
    name = record.REQUESTS
    series = {f'{name}{{finish="{finish}"}}': (1, 1 + count), f'{name}{{finish="stop"}}': (0, 100)}
    seen = observed(series)
    assert (names(seen) == ["requests_fail"]) == said
    assert not said or finding(seen, "requests_fail").subject == finish


def test_three_failures_of_thousands_are_not_told():
    name = record.REQUESTS
    assert names(observed({f'{name}{{finish="internal"}}': (0, 3), f'{name}{{finish="stop"}}': (0, 5000)})) == []


def test_a_breaker_is_told_with_those_who_went_around_it():
    opened = policy_service.BREAKERS_OPENED
    series = {
        f'{opened}{{model="{SMALL}"}}': (0, 1),
        f'{opened}{{model="{LARGE}"}}': (4, 4),
        f'{record.REQUESTS}{{finish="stop",reason="small_cooling_down"}}': (0, 7),
    }
    only = finding(observed(series), "breaker_open")
    assert (only.subject, only.figure) == (SMALL, "opened 1 times; 7 requests went around it")
    assert names(observed({f'{opened}{{model="{SMALL}"}}': (3, 3)})) == []
    # It opened before the doctor came.
    of_before = observed({f'{record.REQUESTS}{{reason="large_cooling_down"}}': (9, 12)})
    assert finding(of_before, "breaker_open").subject == "large"


REFUSED = 'E1130 1 1 x.py:67] "the policy is refused, the last good one serves on: /a/policy.py:7: RETRIES: it is -1"'
TAKEN = 'W1130 1 1 x.py:67] "/a/policy.py: policy 9d0a41c7be52 takes effect"'


@pytest.mark.parametrize(
    ("before", "during", "counter", "file"),
    [
        ([REFUSED], [], (1, 1), "/a/policy.py:7"),
        ([TAKEN], [REFUSED], (1, 2), "/a/policy.py:7"),
        ([REFUSED], [TAKEN], (1, 1), None),
        ([REFUSED, TAKEN], [], (1, 1), None),
        ([], [], (1, 2), "bls/policy.py"),
        ([], [], (2, 2), None),
    ],
)
def test_a_policy_is_refused_until_another_is_taken(before, during, counter, file):
    series = {f'{policy_service.POLICY_RELOADS}{{outcome="refused"}}': counter}
    findings, _ = judge(observed(series, before=before, log=during))
    assert [each.file for each in findings] == ([file] if file else [])


def test_a_policy_file_that_was_put_back_as_it_was_is_not_refused():
    request = "I1130 1 1 x.py:67] \"request id='' output_tokens=1 policy=9d0a41c7be52:70 verdict=-\""
    for lines in ([TAKEN, REFUSED], [request, REFUSED], [REFUSED, request]):
        seen = observed(before=lines)
        assert names(seen) == ["policy_refused"]
        assert names(replace(seen, policy_version="9d0a41c7be52")) == []
        assert names(replace(seen, policy_version="another")) == ["policy_refused"]


def test_rules_and_checks_that_can_not_decide_are_told():
    seen = observed(
        {
            record.POLICY_ERRORS: (1, 2),
            f'{record.FAILED_CHECKS}{{check="classifier"}}': (0, 5),
            f'{record.FAILED_CHECKS}{{check="language"}}': (0, 1),
            f'{record.VERDICTS}{{action="allow"}}': (0, 100),
        }
    )
    assert names(seen) == ["policy_errors", "prompt_check_fails"]


def first_tokens(**by_bound):
    name = record.FIRST_TOKEN
    bounds = {bound.lstrip("b").replace("_", "."): count for bound, count in by_bound.items()}
    total = max(bounds.values())
    series = {f'{name}_bucket{{model="{SMALL}",le="{bound}"}}': (0, count) for bound, count in bounds.items()}
    return {
        **series,
        f'{name}_bucket{{model="{SMALL}",le="+Inf"}}': (0, total),
        f'{name}_count{{model="{SMALL}"}}': (0, total),
    }


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"b0_1": 95, "b0_25": 95, "b1": 100}, True),
        ({"b0_1": 99, "b0_25": 100, "b1": 100}, False),  # one in a hundred, and not by much
        ({"b0_01": 95, "b0_1": 95, "b0_25": 100}, False),  # far in proportion, but nobody feels it
        ({"b1": 20, "b2_5": 95, "b5": 100}, False),  # slow, all of them
    ],
)
def test_a_long_tail_is_one_in_proportion_and_in_time(counts, said):
    assert ("long_tail" in names(observed(first_tokens(**counts)))) == said


def test_fewer_than_fifty_answers_have_no_tail():
    seen = observed(first_tokens(b0_1=46, b1=49))
    assert names(seen) == [] and unsure(seen) == {"long_tail"}


# The machine


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
        (replace(MACHINE, memory_available=GIB // 2), "0.5 of 16.0 GiB left"),
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
    assert finding(seen, "hardware_is_the_limit").figure.endswith("CPU busy 95%")


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


# Figures that mislead


@pytest.mark.parametrize(("off_s", "said"), [(0, None), (2, None), (100, "100 s ahead"), (-100, "100 s behind")])
def test_a_clock_that_differs_is_told_by_what_the_server_timed_between_two_looks(off_s, said):
    last_s = [{"a": 1000.5 + off_s + look - 1} for look in range(3)]
    seen = observed(looks=3, counts={"a": did(5)}, last_s=last_s)
    findings, _ = judge(seen)
    assert [said in each.figure for each in findings if each.name == "clock_skew"] == ([True] if said else [])


def test_an_old_time_of_a_model_that_answered_nothing_is_no_skew():
    assert names(observed(looks=2, counts={"a": (Counts(3, 3), Counts(3, 3))}, last_s=[{"a": 5.0}] * 2)) == []


def test_a_page_that_stands_still_while_the_server_answers():
    name = 'nv_inference_count{model="a"}'
    assert names(observed({name: 7}, counts={"a": did(5)})) == ["metrics_frozen"]
    assert names(observed({name: (7, 12)}, counts={"a": did(5)})) == []
    assert names(observed({name: 7}, counts={"a": did(4)})) == []


def test_counters_that_fell_are_told_with_whose_they_are():
    counts = {"a": (Counts(9, 9), Counts(2, 2)), "b": (Counts(9, 9), Counts(9, 9))}
    assert finding(observed(counts=counts), "counters_reset").subject == "a"
    # A model that is being loaded is away for a while, and then counts from zero.
    seen = observed(looks=3, counts={"a": (Counts(9, 9), Counts(0, 0))})
    away = replace(seen.samples[1], counts={})
    assert finding(replace(seen, samples=(seen.first, away, seen.last)), "counters_reset").subject == "a"


# All of them


def test_an_idle_server_has_nothing_wrong_and_nothing_unsure():
    models = [Model(ROUTER, instances=32), Model(SMALL, max_batch_size=8, queue_delay_us=100, has_batcher=True)]
    series = {IN_FLIGHT: 0, PENDING % ROUTER: 0, PENDING % SMALL: 0}
    stubs = replace(MACHINE, stubs={ROUTER: 32, SMALL: 1})
    assert judge(observed(series, models=models, states=READY, machines=[stubs] * 8)) == ([], [])


def test_the_worst_comes_first_and_the_order_is_that_of_the_rules():
    states = {ROUTER: ("READY", ""), "x": ("UNAVAILABLE", "broken")}
    seen = observed(
        {record.POLICY_ERRORS: (0, 1), PENDING % "a": 20},
        models=[Model("a", queue_delay_us=10**6, max_queue_size=20)],
        states=states,
        counts={"a": (Counts(9, 9), Counts(2, 2))},
    )
    assert [each.weight for each in judge(seen)[0]] == sorted((each.weight for each in judge(seen)[0]), reverse=True)
    told = [name for name in names(seen) if name != "child_not_ready"]
    assert told == ["model_failed_to_load", "queue_full", "policy_errors", "queue_delay_long", "counters_reset"]


def test_every_rule_is_in_the_list_and_in_the_page_of_troubles():
    modules = [getattr(doctor_rules, name) for name in dir(doctor_rules)]
    imported = {
        each for each in modules if callable(each) and getattr(each, "__module__", "").startswith("scripts.doctor_")
    }
    assert imported - {judge, Finding, NotJudged, Observation, Weight} == set(RULES)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    more = {
        "engine_batch_of_one",
        "engine_batch_static",
        "kv_cache_reserved",
        "hardware_is_the_limit",
    }  # that a rule of another name tells
    assert [name for name in ({rule.__name__ for rule in RULES} | more) if f"`{name}`" not in page] == []
