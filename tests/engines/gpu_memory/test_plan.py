"""engines/gpu_memory/plan.py, loading.py and advice.py: what must hold of any plan."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engines.gpu_memory import known, placement_keys
from engines.gpu_memory.advice import changes, more_gpus, smallest_gpu
from engines.gpu_memory.loading import Setting, loads
from engines.gpu_memory.placement import BadPlacement, Gpu
from engines.gpu_memory.plan import Case, DoesNotFit, plan
from engines.gpu_memory.sizes import GIB, LLMAPI, TENSORRT
from engines.tensorrt_llm.spec import GpuSpec

MODELS = ("Qwen2.5-1.5B", "Qwen2.5-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Mistral-Nemo-2407", "DeepSeek-V2-Lite")


def placement(name="small", source="Qwen2.5-1.5B", runtime=TENSORRT, gpus=1, engine=None, **keys):
    spec = GpuSpec.of(
        {"model": source, "max_seq_len": 4096} | {k: v for k, v in keys.items() if k in placement_keys.SPEC_KEYS}
    )
    return placement_keys.placement(name, engine or name, spec, known.model(source), runtime, gpus, keys)


def gpus(*gib):
    return tuple(Gpu(f"GPU {number}", int(each * GIB)) for number, each in enumerate(gib))


@st.composite
def cases(draw):
    """One to three models on one to four equal GPUs; most fit, some don't."""
    count = draw(st.sampled_from([1, 2, 4]))
    runtime = draw(st.sampled_from([TENSORRT, LLMAPI]))
    placements = []
    for number in range(draw(st.integers(1, 3))):
        keys = {
            "source": draw(st.sampled_from(MODELS)),
            "tp_size": draw(st.sampled_from([size for size in (1, 2, 4) if size <= count])),
            "quantisation": draw(st.sampled_from(["none", "fp8", "int4_weight_only"])),
            "max_batch_size": draw(st.sampled_from([8, 64])),
            "max_num_tokens": draw(st.sampled_from([2048, 8192])),
            "concurrent": draw(st.integers(1, 8)),
            "instances": draw(st.integers(1, 2 if runtime == TENSORRT else 1)),
        }
        placements.append(placement(f"model {number}", runtime=runtime, gpus=count, **keys))
    reserved = draw(st.sampled_from([0, GIB]))
    head_room = draw(st.sampled_from([Fraction(1, 5), Fraction(1, 20), Fraction(1, 2)]))
    return Case(gpus(*[draw(st.integers(16, 200))] * count), tuple(placements), head_room, reserved)


def planned(case):
    try:
        return plan(case)
    except DoesNotFit:
        return None


@given(cases())
@settings(deadline=None)
def test_a_plan_leaves_the_head_room_and_gives_every_model_what_it_needs(case):
    found = planned(case)
    assume(found)
    for number, gpu in enumerate(case.gpus):
        assert found.used(number) <= gpu.memory * (1 - case.head_room)
    for engine in found.engines:
        assert engine.kv_tokens >= engine.placement.needed_tokens
        assert engine.kv_tokens % 32 == 0
        assert engine.requests_at_once >= engine.placement.concurrent
        assert 0 < engine.fraction <= 1


@given(cases())
@settings(deadline=None)
def test_each_cache_is_as_planned_whichever_model_loads_first(case):
    found = planned(case)
    assume(found)
    given_ = {engine.placement.model: Setting(engine.fraction, engine.kv_tokens) for engine in found.engines}
    for load in loads(case, given_):
        assert load.tokens == {engine.placement.model: engine.kv_tokens for engine in found.engines}
        assert load.used == tuple(found.used(number) for number in range(len(case.gpus)))


@given(cases(), st.integers(1, 64))
@settings(deadline=None)
def test_more_memory_never_fits_fewer_tokens(case, more_gib):
    before = planned(case)
    assume(before)
    larger = tuple(replace(gpu, memory=gpu.memory + more_gib * GIB) for gpu in case.gpus)
    after = plan(replace(case, gpus=larger))
    for one, other in zip(before.engines, after.engines, strict=True):
        assert other.kv_tokens >= one.kv_tokens


@given(cases())
@settings(deadline=None)
def test_what_does_not_fit_is_short_by_what_a_larger_gpu_would_have(case):
    try:
        plan(case)
    except DoesNotFit as shortage:
        assert shortage.short == shortage.needs - shortage.has > 0
        exact = int(shortage.short / (1 - case.head_room)) + 2
        plan(replace(case, gpus=tuple(replace(gpu, memory=gpu.memory + exact) for gpu in case.gpus)))


@given(cases())
@settings(deadline=None, max_examples=30)
def test_every_change_that_is_proposed_fits(case):
    assume(planned(case) is None)
    for change in changes(case):
        placements = [
            placement_keys.changed(each, change.get(each.model, {}), len(case.gpus)) for each in case.placements
        ]
        plan(replace(case, placements=tuple(placements)))
    name = smallest_gpu(case)
    if name:
        plan(replace(case, gpus=(known.gpu(name),) * len(case.gpus)))
    if more := more_gpus(case):
        count, change = more
        placements = [placement_keys.changed(each, change.get(each.model, {}), count) for each in case.placements]
        plan(replace(case, placements=tuple(placements), gpus=case.gpus[:1] * count))


def test_a_change_of_an_engine_holds_for_every_model_that_loads_it():
    three = (placement("large", "Qwen2.5-7B"), placement("static", "Qwen2.5-7B", engine="large", instances=2))
    found = changes(Case(gpus(60), three))
    assert {"large": {"quantisation": "int4_awq"}} in found
    assert not any("quantisation" in keys for change in found for keys in [change.get("static", {})])


def test_awq_is_not_proposed_where_its_blocks_cannot_be_cut():
    found = changes(Case(gpus(70, 70), (placement("large", "Qwen2.5-72B", gpus=2, tp_size=2),)))
    assert found and not any(keys.get("quantisation") == "int4_awq" for change in found for keys in change.values())


def test_a_model_for_which_one_change_is_too_little_is_spread_over_the_gpus_too():
    found = changes(Case(gpus(*[44.3] * 4), (placement("large", "Llama-3.1-70B", gpus=4, max_num_tokens=8192),)))
    (keys,) = [change["large"] for change in found]
    assert (keys["tp_size"], keys["quantisation"]) == (4, "fp8")


def test_a_model_that_has_another_gpu_for_itself_is_sent_there():
    pair = (placement("small", "Qwen2.5-7B", gpus=2), placement("large", "Llama-3.1-8B", gpus=2))
    assert changes(Case(gpus(39.3, 39.3), pair))[:1] == [{"large": {"gpus": "1"}}]


def test_a_batch_far_beyond_the_gpu_is_made_smaller():
    found = changes(Case(gpus(44.3), (placement("large", "Qwen2.5-7B", max_batch_size=4096, max_num_tokens=8192),)))
    assert {"large": {"max_batch_size": 128, "concurrent": 128}} in found


def test_models_share_what_is_left_in_proportion_to_what_they_need():
    found = plan(Case(gpus(80), (placement("one", concurrent=20), placement("two", concurrent=40))))
    assert found.engines[1].kv_tokens == pytest.approx(2 * found.engines[0].kv_tokens, abs=64)


def test_a_fraction_alone_depends_on_who_loads_first():
    pair = Case(gpus(44.3), (placement("small"), placement("large", "Qwen2.5-7B")))
    ways = loads(pair, {"small": Setting(Fraction(1, 2)), "large": Setting(Fraction(1, 2))})
    assert [load.order for load in ways] == ["small then large", "large then small", "all at once"]
    assert ways[0].tokens["small"] > 2 * ways[1].tokens["small"]
    assert ways[2].used[0] > ways[0].used[0]


def test_the_second_engine_finds_no_memory_where_the_first_took_tensorrt_llms_nine_tenths():
    pair = Case(gpus(24), (placement("small"), placement("large", "Qwen2.5-7B")))
    ways = loads(pair, {"small": Setting(), "large": Setting()})
    assert [load.tokens[second] for load, second in zip(ways, ("large", "small"), strict=False)] == [0, 0]


def test_a_model_on_two_gpus_is_bounded_by_the_fuller_one():
    alone = plan(Case(gpus(80, 80), (placement("large", "Qwen2.5-7B", gpus=2, tp_size=2),)))
    beside = plan(Case(gpus(80, 80), (placement("large", "Qwen2.5-7B", gpus=2, tp_size=2), placement("small", gpus=2))))
    assert beside.engines[0].kv_tokens < alone.engines[0].kv_tokens
    assert beside.used(1) < beside.used(0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"input": 4000, "output": 100}, "input and output are 4100 tokens; max_seq_len is 4096"),
        ({"input": 3000, "max_input_len": 2000}, "input is 3000 tokens; max_input_len is 2000"),
        ({"concurrent": 65}, "concurrent is 65 for each instance; max_batch_size is 64"),
        (
            {"tp_size": 8, "gpus": 8},
            "tp_size is 8; the model's 12 attention heads and 2 key-value heads can be divided among 1, 2, 4, 6, "
            "12 GPUs",
        ),
        ({"pp_size": 40, "gpus": 40}, "pp_size is 40; the model has 28 layers"),
        ({"max_seq_len": 65_536}, "max_seq_len is 65536; the model's context is 32768 tokens"),
        ({"tp_size": 2}, "tp_size x pp_size is 2; there are 1 GPUs"),
        ({"instances": 65}, "instances is 65; at most 64"),
        (
            {"quantisation": "int4_awq", "tp_size": 4, "gpus": 4},
            r"intermediate_size \(8960\) can't be split into blocks of 128",
        ),
        ({"runtime": LLMAPI, "instances": 2}, "instances is 2; by the LLM API a model here has one"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused_by_its_key(keys, message):
    with pytest.raises(BadPlacement, match=message):
        placement(**keys)


def test_fp8_is_refused_on_a_gpu_that_cannot_compute_it():
    with pytest.raises(BadPlacement, match="small is in fp8, which A100-80GB can't compute"):
        Case((known.gpu("A100-80GB"),), (placement(quantisation="fp8"),))
    plan(Case((known.gpu("H100-80GB"),), (placement(quantisation="fp8"),)))


def test_integer_weights_are_refused_for_engines_on_data_centre_blackwell_alone():
    awq = placement(quantisation="int4_awq")
    with pytest.raises(BadPlacement, match="small is in int4_awq, which is not possible for B200: use fp8"):
        Case((known.gpu("B200"),), (awq,))
    for name in ("A10", "H200", "RTX-5090"):
        plan(Case((known.gpu(name),), (awq,)))


def test_eight_bits_of_kv_cache_hold_twice_the_tokens():
    sixteen, eight = (
        plan(Case(gpus(44), (placement(quantisation="fp8", kv_cache_dtype=kind),))).engines[0]
        for kind in ("auto", "fp8")
    )
    assert eight.kv_tokens == pytest.approx(2 * sixteen.kv_tokens, abs=32)


def test_the_ranks_of_a_model_agree_on_what_the_fuller_gpu_has_left():
    pair = (placement("small", gpus=2), placement("large", "Qwen2.5-7B", gpus=2, tp_size=2))
    on_one = loads(Case(gpus(80, 80), pair), {"small": Setting(Fraction(1, 2)), "large": Setting()})[0]
    large = pair[1]
    free = 80 * GIB - pair[0].parts.total - on_one.tokens["small"] * pair[0].kv_bytes_per_token - large.parts.total
    assert on_one.tokens["large"] == int(0.9 * free) // (32 * large.kv_bytes_per_token) * 32
