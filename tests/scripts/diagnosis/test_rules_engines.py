"""The doctor's rules on GPUs and TensorRT-LLM, by pages of metrics that were written from the source, not scraped."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from scripts.diagnosis.metrics_page import parse
from scripts.diagnosis.report import as_json, for_people
from scripts.diagnosis.rules import judge
from scripts.diagnosis.rules_engines import kv_reuse
from scripts.diagnosis.sample import Counts, Model, Observation, Sample

PAGE = (ROOT / "tests" / "data" / "trtllm_metrics.txt").read_text()
MODELS = {name: Model(name, backend="tensorrtllm", max_batch_size=64) for name in (SMALL, LARGE)}
START_S = 1796009858.0  # as in the page
GIB = 2**30


def page(look, requests, **changes):
    """The page a second later for each look, some values of it changed: by label value, of the small engine, or by
    name. A list has one value for each look."""
    text = PAGE.replace(
        f'nv_inference_count{{model="{SMALL}",version="1"}} 420',
        f'nv_inference_count{{model="{SMALL}",version="1"}} {requests}',
    )
    changes = {"timestamp": int((START_S + look) * 1e6), "iteration_counter": 40000 + 30 * look, **changes}
    for name, value in changes.items():
        value = value[look] if isinstance(value, list) else value
        label = name if "=" in name else rf'\w+="{name}"'
        text, found = re.subn(
            rf'^(\S*(?:{{model="{SMALL}",version="1",{label}}}|{name}(?:{{\S*)?) )\S+$',
            rf"\g<1>{value}", text, flags=re.MULTILINE,
        )  # fmt: skip
        assert found == 1, name
    return parse(text)


def observed(looks=8, requests=60, **changes):
    models = {SMALL: (420, 420 + requests), LARGE: (160, 160)}
    return Observation(
        tuple(
            Sample(
                at_s=look,
                unix_s=START_S + look,
                page=page(look, models[SMALL][look > 0], **changes),
                states=dict.fromkeys(models, ("READY", "")),
                counts={name: Counts(both[look > 0], both[look > 0]) for name, both in models.items()},
            )
            for look in range(looks)
        ),
        MODELS,
    )


def names(**changes):
    reused = [900 + look for look in range(8)]
    return [finding.name for finding in judge(observed(**{"reused": reused, **changes}))[0]]


def only(name, **changes):
    (found,) = [each for each in judge(observed(**changes))[0] if each.name == name]
    return found


def test_two_engines_at_ease_have_nothing_wrong():
    assert names() == []


def test_a_full_cache_that_holds_requests_back_names_its_size_and_both_limits():
    full = {"used": 4060, "free": 0, "fraction": 1.0, "waiting": 7, "active": 13}
    found = only("kv_cache_full", **full)
    assert found.figure == "100% of its 259840 tokens were used while 7.0 requests waited (mean)"
    assert (found.subject, found.file) == (SMALL, f"{SMALL}/config.pbtxt")
    assert found.key == "max_tokens_in_paged_kv_cache, kv_cache_free_gpu_mem_fraction"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fraction": 0.95, "waiting": 1}, ["kv_cache_full"]),
        ({"fraction": 0.94, "waiting": 1}, ["kv_cache_reserved"]),
        ({"fraction": 1.0, "waiting": 0}, []),  # full, and nobody minds
        ({"fraction": 0.5, "paused_requests": [0, 0, 0, 0, 2, 0, 0, 0]}, ["kv_cache_full"]),
        ({"fraction": 0.99, "waiting": [1, 0, 0, 0, 0, 0, 0, 1]}, []),  # for moments
        ({"waiting": 4, "scheduled": 1, 'request_type="max"': 1}, ["engine_batch_of_one"]),
        ({"waiting": 4, "scheduled": 64}, ["engine_batch_full"]),
        ({"waiting": 4, "scheduled": 58}, ["engine_batch_full"]),
        ({"waiting": 4, "scheduled": 57}, ["kv_cache_reserved"]),
        ({"waiting": [4, 0, 0, 0, 0, 0, 0, 4]}, []),
    ],
)
def test_what_waits_in_an_engine_waits_for_its_cache_or_for_its_batch(changes, said):
    assert names(**changes) == said


def test_what_waits_beside_a_static_batch_waits_for_its_end():
    static = {**MODELS, SMALL: replace(MODELS[SMALL], parameters={"gpt_model_type": "V1"})}
    found, _ = judge(replace(observed(waiting=4, scheduled=3, reused=list(range(8))), models=static))
    assert [each.name for each in found] == ["engine_batch_static"]


def test_a_full_batch_of_a_built_engine_is_built_anew():
    assert "trtllm-build --max_batch_size" in only("engine_batch_full", waiting=3, scheduled=64).change


@pytest.mark.parametrize(("looks", "unsure"), [(4, True), (5, False)])
def test_four_looks_at_an_engine_are_too_few(looks, unsure):
    not_judged = {each.name for each in judge(observed(looks, waiting=3))[1]}
    assert ("engine_batch_full" in not_judged) == unsure


@pytest.mark.parametrize(
    ("reused", "requests", "said", "unsure"),
    [(900, 50, True, False), (900, 49, False, True), ([900] * 7 + [901], 50, False, False), (900, 0, False, False)],
)
def test_a_cache_of_which_nothing_is_reused(reused, requests, said, unsure):
    found, not_judged = judge(observed(requests=requests, reused=reused))
    assert ("kv_cache_never_reused" in {each.name for each in found}) == said
    assert ("kv_cache_never_reused" in {each.name for each in not_judged}) == unsure


MISSED = f'nv_trt_llm_kv_cache_block_metrics{{model="{SMALL}",version="1",kv_cache_block_type="missed"}} '
ASKED = f'nv_llm_input_token_len_sum{{model="{SMALL}",version="1",response_metric_type="total_input_tokens"}} '


def with_line(line, *values, **changes):
    """The observation with one more series, which grows from the first value to the second."""
    seen = observed(**changes)
    looks = []
    for number, sample in enumerate(seen.samples):
        added = parse(f"{line}{values[number > 0]}").series
        looks.append(replace(sample, page=replace(sample.page, series={**sample.page.series, **added})))
    return replace(seen, samples=tuple(looks))


GREW = {"reused": [900] + [930] * 7}


@pytest.mark.parametrize(
    ("line", "values", "share"),
    [
        (MISSED, (100, 110), 0.75),
        (MISSED, (100, 100), 1),
        (ASKED, (0, 120 * 64), 0.25),  # blocks of 64 tokens
        (ASKED, (0, 29 * 64), 1),  # the last block of a prompt is rarely full
    ],
)
def test_what_is_reused_is_told_as_a_share_of_what_the_prompts_needed(line, values, share):
    seen = with_line(line, *values, **GREW)
    assert kv_reuse(seen) == {SMALL: share}
    assert as_json("s", seen, [], [])["kv_reuse"] == {SMALL: share}
    line = for_people("s", seen, [], []).split("\n")[1]
    assert line == f"KV blocks of prompts that were reused: {share:.0%} in {SMALL}"


def test_no_share_is_told_where_no_prompt_came_or_nobody_says_how_long_they_were():
    assert kv_reuse(with_line(MISSED, 100, 100)) == {}
    assert kv_reuse(observed(**GREW)) == {}
    assert "reused" not in for_people("s", observed(**GREW), [], [])


@pytest.mark.parametrize(("blocks", "said"), [(119, False), (120, True)])
def test_prompts_without_a_whole_block_are_not_blamed_for_sharing_none(blocks, said):
    found = judge(with_line(MISSED, 0, blocks, requests=60, reused=900))[0]
    assert ("kv_cache_never_reused" in {each.name for each in found}) == said


def test_an_engine_that_does_not_tell_what_it_reuses_is_not_judged():
    seen = observed()
    dropped = [
        replace(each, page=parse("\n".join(line for line in PAGE.split("\n") if '"reused"' not in line)))
        for each in seen.samples
    ]
    names = {each.name for half in judge(replace(seen, samples=tuple(dropped))) for each in half}
    assert "kv_cache_never_reused" not in names


@pytest.mark.parametrize(
    ("use", "in_flight", "said"),
    [
        ([0.95, 0.15, 0.9, 0.2, 0.92, 0.1, 0.9, 0.2], 12, True),
        ([0.7, 0.8, 0.75, 0.82, 0.78, 0.7, 0.8, 0.75], 12, False),
        ([0.95, 0.95, 0.95, 0.15, 0.15, 0.15, 0.9, 0.9], 12, False),  # three readings, each seen again and again
    ],
)
def test_a_gpu_that_swings_under_a_steady_load(use, in_flight, said):
    assert ("gpu_swings" in names(nv_gpu_utilization=use, llm_router_requests_in_flight=in_flight)) == said


def test_a_load_that_comes_in_waves_lets_a_gpu_swing_by_itself():
    waves = [12, 0] * 4
    assert "gpu_swings" not in names(
        nv_gpu_utilization=[0.95, 0.15, 0.9, 0.2, 0.92, 0.1, 0.91, 0.21], llm_router_requests_in_flight=waves,
        active=waves,
    )  # fmt: skip


def test_a_gpu_without_memory_left():
    assert "gpu_memory_full" in names(nv_gpu_memory_used_bytes=int(78.5 * GIB))
    assert "gpu_memory_full" not in names(nv_gpu_memory_used_bytes=int(78.0 * GIB))


def test_requests_that_wait_while_the_gpu_idles_are_not_held_up_by_it():
    assert "low_throughput" in names(waiting=5, nv_gpu_utilization=0.2)
    assert "hardware_is_the_limit" in names(waiting=5, nv_gpu_utilization=0.97)
    assert "hardware_is_the_limit" in names(waiting=5, nv_gpu_utilization=0.2, nv_cpu_utilization=0.97)


def test_timestamps_that_are_an_hour_off_are_told_with_the_release_that_has_the_fix():
    off = [int((START_S + look + 3600) * 1e6) for look in range(8)]
    found = only("clock_skew", timestamp=off)
    assert "3600 s ahead" in found.figure and "release 26.04" in found.meaning


def test_timestamps_that_stand_still_under_load_are_the_past():
    assert "timestamp did not move" in only("metrics_frozen", timestamp=int(START_S * 1e6)).figure
