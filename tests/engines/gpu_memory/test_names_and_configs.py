"""GPUs by the names that people have, and configs of models that are more than a decoder, or none."""

import pytest

from engines.gpu_memory import known
from engines.gpu_memory.shape import BadModel, read
from engines.gpu_memory.sizes import GIB
from tests.engines.gpu_memory.test_shape import LLAMA


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("A10G", "A10G"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("nvidia-a100-80gb", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H100 PCIe", "H100-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("GH200", "GH200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("RTX-4070-SUPER", "RTX-4070-SUPER"),
        ("NVIDIA GeForce RTX 4070 SUPER", "RTX-4070-SUPER"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("nvidia-l4", "L4"),
        ("nvidia-h100-mega-80gb", "H100-80GB"),
        ("nvidia-h200-141gb", "H200"),
        ("NVIDIA H200 NVL", "H200"),
        ("H800", "H800-80GB"),
        ("rtx4090", "RTX-4090"),
        ("4090", "RTX-4090"),
        ("RTX4070SUPER", "RTX-4070-SUPER"),
    ],
)
def test_a_card_is_known_as_nvidia_smi_and_clouds_call_it(name, card):
    assert known.gpu(name) == known.gpu(card)
    assert known.gpu(card).name == card


@pytest.mark.parametrize("card", known.GPUS)
def test_every_card_is_known_by_its_own_name_and_as_nvidia_smi_would_write_it(card):
    assert known.gpu(card).name == known.gpu(f"NVIDIA {card.replace('-', ' ')}").name == card


@pytest.mark.parametrize(
    ("name", "gib", "capability"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 38, (8, 0)),
        ("H100-80GB-1g.10gb", 9.5, (9, 0)),
        ("nvidia.com/mig-2g.20gb", 19, (8, 0)),
        ("1g.5gb", 4.75, (8, 0)),
        ("A100-1g.5gb", 4.75, (8, 0)),
    ],
)
def test_a_slice_of_a_card_has_its_own_memory(name, gib, capability):
    found = known.gpu(name)
    assert (found.memory / GIB, found.capability) == (pytest.approx(gib), capability)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("A100", "GPU 'A100' comes in more than one size: A100-40GB or A100-80GB"),
        ("nvidia-tesla-t4", "nvidia-tesla-t4 has compute capability 7.5"),
        (
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 4090 Laptop GPU: a laptop's card may have less memory",
        ),
        ("4091", "GPU '4091' isn't known; near: RTX-4080, RTX-4090"),
        ("RTX-4071", "GPU 'RTX-4071' isn't known; near: RTX-4070"),
    ],
)
def test_what_is_open_or_unknown_is_told_with_what_there_is(name, complaint):
    with pytest.raises(BadModel) as refused:
        known.gpu(name)
    assert str(refused.value).startswith(complaint)


TEXT = {key: value for key, value in LLAMA.items() if key != "architectures"}


def test_the_text_model_within_a_larger_one_is_counted_and_the_rest_is_named():
    whole = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "text_config": {**TEXT, "model_type": "mistral"},
        "vision_config": {"hidden_size": 1024},
    }
    found = read(whole)
    assert found.parameters == read(LLAMA | {"architectures": ["MistralForCausalLM"]}).parameters
    assert found.notes == ("of Mistral3ForConditionalGeneration only the text model is counted, not: vision",)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"text_config": []}, r"text_config is \[\]; it must be an object"),
        ({"text_config": {"model_type": "x"}}, "text_config has the model_type 'x', which isn't known here"),
    ],
)
def test_a_text_config_that_is_not_known_is_refused_by_name(config, complaint):
    with pytest.raises(BadModel, match=complaint):
        read({"architectures": ["XForConditionalGeneration"], **config})


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["T5ForConditionalGeneration"]},
        {"architectures": ["WhisperForConditionalGeneration"]},
        {"architectures": ["SomethingForConditionalGeneration"], "is_encoder_decoder": True},
    ],
)
def test_an_encoder_decoder_is_refused_by_its_name(config):
    with pytest.raises(BadModel, match=f"{config['architectures'][0]} is an encoder-decoder; only decoders are"):
        read(LLAMA | config)


@pytest.mark.parametrize(
    ("more", "some"),
    [
        ({"sliding_window": 16}, 2),
        ({"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}, 1),
        ({"sliding_window": 16, "sliding_window_pattern": 2}, 1),
        ({"sliding_window": 16, "use_sliding_window": False}, 0),
        ({"sliding_window": 4096, "max_position_embeddings": 4096}, 0),
        ({"sliding_window": None}, 0),
    ],
)
def test_layers_that_see_a_window_only_are_told_and_count_in_full(more, some):
    found = read(LLAMA | {"architectures": ["MistralForCausalLM"]} | more)
    plain = read(LLAMA | {"architectures": ["MistralForCausalLM"]})
    assert found.parameters == plain.parameters
    assert [note.partition(" of ")[0] for note in found.notes] == ([str(some)] if some else [])
