"""engines/gpu_memory/shape.py and models.toml: parameters of published checkpoints, to the last one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.gpu_memory import known
from engines.gpu_memory.families import FAMILIES
from engines.gpu_memory.shape import BadModel, read

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}

# With the keys of every architecture.
EVERYTHING = LLAMA | {
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "rope_scaling": None,
    "mlp_only_layers": [],
    "head_dim": 16,
    "max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("SmolLM2-135M", 134_515_008),
        ("TinyLlama-1.1B-v1.0", 1_100_048_384),
        ("Llama-2-7B", 6_738_415_616),
        ("Llama-3.2-1B", 1_235_814_400),
        ("Llama-3.2-3B", 3_212_749_824),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
        ("Llama-3.1-405B", 405_853_388_800),
        ("Mistral-7B-v0.1", 7_241_732_096),
        ("Mistral-7B-v0.3", 7_248_023_552),
        ("Mistral-Nemo-2407", 12_247_782_400),
        ("Mixtral-8x7B-v0.1", 46_702_792_704),
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen2.5-1.5B", 1_543_714_304),
        ("Qwen2.5-3B", 3_085_938_688),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Qwen2.5-14B", 14_770_033_664),
        ("Qwen2.5-32B", 32_763_876_352),
        ("Qwen2.5-72B", 72_706_203_648),
        ("Qwen3-8B", 8_190_735_360),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("Gemma-2B", 2_506_172_416),
        ("Gemma-2-9B", 9_241_705_984),
        ("Gemma-3-1B", 999_885_952),
        ("Phi-3-mini-4k", 3_821_079_552),
        ("DeepSeek-V2-Lite", 15_706_484_224),
        ("DeepSeek-V3", 671_026_419_200),
        ("Falcon-7B", 6_921_720_704),
    ],
)
def test_a_known_model_has_the_published_number_of_parameters(name, parameters):
    assert known.model(name)[0].parameters == parameters


def test_an_architecture_that_is_not_known_is_refused_by_name():
    with pytest.raises(BadModel, match="architecture 'MambaForCausalLM' isn't known here; known: LlamaForCausalLM"):
        read(LLAMA | {"architectures": ["MambaForCausalLM"]})


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_architecture_of_the_table_can_be_read(architecture):
    tied = read(EVERYTHING | {"architectures": [architecture], "tie_word_embeddings": True})
    untied = read(EVERYTHING | {"architectures": [architecture], "tie_word_embeddings": False})
    assert untied.parameters - tied.parameters == 64 * 100 < tied.parameters


JUNK = st.sampled_from([None, True, False, -1, 0, 1, 3, 10**12, 0.5, "", "64", [], [1], ["a"], {}, {"factor": 1e300}])


@settings(deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(sorted(EVERYTHING)), JUNK, max_size=3))
def test_whatever_stands_in_a_config_it_is_read_or_refused(architecture, junk):
    try:
        shape = read(EVERYTHING | {"architectures": [architecture]} | junk)
    except BadModel as refused:
        assert "\n" not in str(refused)
    else:
        assert shape.parameters > 0 and shape.head_dim > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "64"}, "hidden_size is '64'; it must be a whole number above 0"),
        ({"vocab_size": 0}, "vocab_size is 0; it must be a whole number above 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; at most 1000"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        ({"architectures": []}, r"architectures is \[\]; it must be a list of one name"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(wrong, message):
    with pytest.raises(BadModel, match=message):
        read(LLAMA | wrong)


def test_the_head_width_is_the_configs_own_where_it_has_one():
    assert read(LLAMA).head_dim == 16
    assert read(LLAMA | {"head_dim": 32}).head_dim == 32  # As in Mistral-Nemo, 128 rather than 5120 / 32.


def test_biases_count_where_the_config_says_so():
    plain = read(LLAMA).parameters
    biased = read(LLAMA | {"attention_bias": True, "mlp_bias": True}).parameters
    assert biased - plain == 2 * ((64 + 2 * 32 + 64) + (2 * 96 + 64))


def test_a_tied_embedding_counts_once():
    assert read(LLAMA).parameters - read(LLAMA | {"tie_word_embeddings": True}).parameters == 100 * 64


@pytest.mark.parametrize(
    ("rope", "context"),
    [(None, 4096), ({"type": "yarn", "factor": 4.0}, 16_384), ({"rope_type": "llama3", "factor": 8.0}, 4096)],
)
def test_a_context_that_is_stretched_counts_as_long_as_it_gets(rope, context):
    assert read(EVERYTHING | {"rope_scaling": rope}).context == context
