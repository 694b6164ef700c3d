"""engines/gpu_memory/sizes.py against figures that others published."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.gpu_memory import known, sizes
from engines.gpu_memory.sizes import GIB, LLMAPI, TENSORRT

MIB = 2**20


def shape(name):
    return known.model(name)[0]


def kv(name, element_bytes=2, tp=1, pp=1):
    return sizes.kv_bytes_per_token(shape(name), element_bytes, tp, pp)


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("TinyLlama-1.1B-v1.0", 22_528),
        ("Llama-2-7B", 524_288),
        ("Llama-3.2-1B", 32_768),
        ("Llama-3.1-8B", 131_072),
        ("Llama-3.1-70B", 327_680),
        ("Llama-3.1-405B", 516_096),
        ("Mistral-7B-v0.3", 131_072),
        ("Mistral-Nemo-2407", 163_840),
        ("Qwen2.5-0.5B", 12_288),
        ("Qwen2.5-1.5B", 28_672),
        ("Qwen2.5-3B", 36_864),
        ("Qwen2.5-7B", 57_344),
        ("Qwen2.5-14B", 196_608),
        ("Qwen2.5-32B", 262_144),
        ("Qwen2.5-72B", 327_680),
    ],
)
def test_a_token_holds_so_many_bytes_of_kv_cache_and_half_of_them_in_8_bits(name, bytes_per_token):
    assert kv(name) == bytes_per_token
    assert kv(name, element_bytes=1) * 2 == bytes_per_token


def test_latent_attention_holds_one_vector_a_layer_on_every_rank():
    # DeepSeek-R1 on 8 B200: 81.83 GiB for 2,500,608 tokens, which are 78,144 blocks of 32.
    assert kv("DeepSeek-R1", element_bytes=1) == kv("DeepSeek-R1", element_bytes=1, tp=8) == 35_136
    assert 78_144 * 32 == 2_500_608
    assert round(2_500_608 * 35_136 / GIB, 2) == 81.83


def test_70b_with_131072_tokens_takes_42_95_gigabytes_and_the_formula_without_grouped_queries_eight_times_as_much():
    published = kv("Llama-3.1-70B") * 131_072
    assert round(published / 1e9, 2) == 42.95
    llama = shape("Llama-3.1-70B")
    without_groups = 2 * len(llama.layers) * llama.hidden * 2 * 131_072
    assert without_groups == 8 * published
    assert kv("Llama-3.1-70B") * 4096 == 1_342_177_280


def test_the_blocks_of_the_log_in_tensorrt_llms_document():
    # "available: 70.48 GiB", 0.9 of it, blocks of 64 tokens: "Number of blocks in KV cache primary pool: 4060". The
    # numbers fit Llama-2-7B in fp16 on two GPUs.
    per_token = kv("Llama-2-7B", tp=2)
    assert per_token == 256 * 1024
    assert abs(sizes.kv_blocks(int(0.9 * 70.48 * GIB), per_token, 64) - 4060) <= 1
    assert round(4060 * 64 * per_token / GIB, 2) == 63.44


def test_the_blocks_of_tinyllama_in_trtllm_serves_sample():
    blocks = 72_995_045_376
    assert sizes.kv_blocks(blocks, kv("TinyLlama-1.1B-v1.0"), 32) == 101_256
    assert sizes.kv_blocks(blocks - 1, kv("TinyLlama-1.1B-v1.0"), 32) == 101_255


def test_an_engine_of_falcon_stores_its_tied_embedding_twice():
    # tensorrtllm_backend issue 274: 14,434,380,600 bytes are allocated for the engine.
    stored = sizes.weights(shape("Falcon-7B"), "none", 1, 1, TENSORRT)
    assert stored == 2 * 7_217_189_760
    assert 0 <= 14_434_380_600 - stored < 2000
    assert sizes.weights(shape("Falcon-7B"), "none", 1, 1, LLMAPI) == 2 * 6_921_720_704


@pytest.mark.parametrize(
    ("name", "quantisation", "tp", "logged_mib"),
    [
        ("Llama-3.1-8B", "none", 1, 15_388),  # NVIDIA/TensorRT-LLM issue 3636
        ("Qwen2.5-0.5B", "int8_weight_only", 1, 875),  # issue 1188
        ("Llama-2-7B", "none", 2, 6695),  # the document on memory usage, if it is this model
    ],
)
def test_an_engine_file_is_little_larger_than_its_weights(name, quantisation, tp, logged_mib):
    stored = sizes.weights(shape(name), quantisation, tp, 1, TENSORRT)
    assert stored <= logged_mib * MIB <= 1.025 * stored


@pytest.mark.parametrize(
    ("name", "tp", "max_num_tokens", "logged_mib"),
    [
        ("Llama-3.1-8B", 1, 128_000, 37_812.51),  # NVIDIA/TensorRT-LLM issue 3636
        ("Qwen2.5-0.5B", 1, 8192, 773.51),  # issue 1188
        ("Llama-2-7B", 2, 8192, 1134.01),  # the document on memory usage, if it is this model at the default of tokens
    ],
)
def test_activations_are_bounded_from_close_above(name, tp, max_num_tokens, logged_mib):
    logged = logged_mib * MIB
    assert logged <= sizes.activations(shape(name), max_num_tokens, tp) <= 1.06 * logged


def test_a_mixture_also_copies_each_token_to_its_experts():
    logged = 2265.58 * MIB  # issue 2683: DeepSeek-V3 in int4 on 8 GPUs, if at the default of 8,192 tokens
    assert logged <= sizes.activations(shape("DeepSeek-V3"), 8192, 8) <= 1.3 * logged


def test_buffers_are_bounded_from_close_above():
    logged = (2.66 + 5.76) * GIB  # issue 1188: runtime buffers and decoder of Qwen2.5-0.5B, everything at its default
    assert logged <= sizes.buffers(shape("Qwen2.5-0.5B").vocab, 2048, 32_768) <= 1.06 * logged


def test_the_process_covers_what_the_document_leaves_unexplained():
    parts_mib = 6695 + 1134.01 + 43.29 + 180.30
    assert (79.10 - 70.48) * GIB - parts_mib * MIB <= sizes.process(TENSORRT, 64) <= 1.5 * GIB


@pytest.mark.parametrize(
    ("quantisation", "share"),
    [
        ("fp8", 1 / 2),
        ("int8_weight_only", 1 / 2),
        ("int4_awq", 4.125 / 16),
        ("int4_gptq", 4.15625 / 16),
        ("nvfp4", 4.5 / 16),
    ],
)
def test_quantised_weights_are_smaller_but_for_embedding_output_and_norms(quantisation, share):
    llama = shape("Llama-3.1-70B")
    whole = sizes.weights(llama, "none", 1, 1, TENSORRT)
    kept = 2 * (2 * llama.embedding + llama.final_norm + sum(layer.plain for layer in llama.layers))
    assert whole == 2 * llama.parameters
    assert sizes.weights(llama, quantisation, 1, 1, TENSORRT) == pytest.approx(kept + (whole - kept) * share, rel=1e-6)


NAMES = ["Llama-3.1-8B", "Qwen2.5-7B", "Qwen2.5-72B", "Mixtral-8x7B-v0.1", "DeepSeek-V3", "Gemma-2-9B"]


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from([2, 4, 8]), st.sampled_from(["none", "fp8", "int4_awq"]))
def test_each_rank_has_about_its_share_of_the_weights_and_all_of_them_are_there(name, tp, quantisation):
    model = shape(name)
    alone = sizes.weights(model, quantisation, 1, 1, TENSORRT)
    rank = sizes.weights(model, quantisation, tp, 1, TENSORRT)
    kept_whole = 2 * model.embedding + 2 * sum(layer.shared + layer.key_value + layer.plain for layer in model.layers)
    assert alone / tp <= rank <= alone / tp + kept_whole + 2 * model.hidden


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 16))
def test_the_stages_of_a_pipeline_hold_every_layer_once_and_differ_by_one_at_most(name, pp):
    model = shape(name)
    stages = sizes.stages(model, pp)
    assert tuple(layer for stage in stages for layer in stage) == model.layers
    assert max(map(len, stages)) - min(map(len, stages)) <= 1
    assert kv(name, pp=pp) * ceil(len(model.layers)) == kv(name) * max(map(len, stages))


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_ranks_together_cache_each_key_value_head_at_least_once(name, tp):
    # As tensorrt_llm/bench/build/tuning.py: 2 x layers x max(tp, kv heads) x head width x bytes, over all ranks.
    model = shape(name)
    if model.latent is None:
        assert tp * kv(name, tp=tp) == 2 * len(model.layers) * max(tp, model.kv_heads) * model.head_dim * 2


def test_one_rank_needs_no_all_reduce_and_more_ranks_larger_ones():
    assert sizes.all_reduce(1, TENSORRT) == sizes.all_reduce(1, LLMAPI) == 0
    assert sizes.all_reduce(2, TENSORRT) == 160_000_000
    assert sizes.all_reduce(8, TENSORRT) == 320_000_000
    assert sizes.all_reduce(8, LLMAPI) > sizes.all_reduce(8, TENSORRT)


def test_ranks_beyond_the_key_value_heads_have_copies_of_them():
    llama = shape("Llama-3.1-70B")
    per_rank = sum(
        layer.heads // 16 + layer.key_value // 8 + layer.feed_forward // 16 + layer.plain for layer in llama.layers
    )
    ends = llama.embedding + llama.embedding // 16 + llama.final_norm
    assert sizes.weights(llama, "none", 16, 1, TENSORRT) == 2 * (per_rank + ends)


def test_a_tied_embedding_is_stored_twice_by_engines_and_by_pipelines():
    qwen = shape("Qwen2.5-1.5B")
    both, once = (sizes.weights(qwen, "none", 1, 1, runtime) for runtime in (TENSORRT, LLMAPI))
    assert both - once == 2 * qwen.embedding
    assert sizes.weights(qwen, "none", 1, 2, LLMAPI) == sizes.weights(qwen, "none", 1, 2, TENSORRT)
