"""engines/llmapi/settings.py and library.py: from config.pbtxt to the arguments of LLM."""

import dataclasses
import os

import pytest
from tensorrt_llm import llmapi

from bls.manifest import TokenizerFile
from bls.tokens import tokenizer_files
from engines.llmapi import library
from engines.llmapi.settings import LlmApiParameters, read
from engines.triton import libraries
from engines.worker.parameters import BadParameter, EngineParameters
from tests.llmapi_models import built_model

MINIMAL = {"gpt_model_type": "inflight_fused_batching"}


def test_the_parameter_engine_chooses_the_library():
    library, settings = libraries.choose(MINIMAL)
    assert library.pipeline == "engines.openvino.pipeline:OpenVinoPipeline"
    assert settings == EngineParameters(in_flight=True)
    library, settings = libraries.choose({**MINIMAL, "engine": "llmapi"})
    assert library.pipeline == "engines.llmapi.pipeline:LlmApiPipeline"
    assert settings == LlmApiParameters(in_flight=True)
    with pytest.raises(BadParameter, match="parameter engine is 'vllm'; legal: openvino, llmapi"):
        libraries.choose({**MINIMAL, "engine": "vllm"})


def test_a_parameter_of_one_library_is_unknown_to_the_other():
    with pytest.raises(BadParameter, match="parameter tensor_parallel_size is unknown"):
        libraries.choose({**MINIMAL, "tensor_parallel_size": "2"})
    with pytest.raises(BadParameter, match="parameter inference_num_threads is unknown"):
        libraries.choose({**MINIMAL, "engine": "llmapi", "inference_num_threads": "2"})


def test_every_parameter_is_read():
    settings = read(
        {
            **MINIMAL,
            "max_batch_size": "64",
            "model": "hf:owner/repo",
            "dtype": "bfloat16",
            "tensor_parallel_size": "2",
            "pipeline_parallel_size": "2",
            "gpu_device_ids": "0,1,2,3",
            "kv_cache_free_gpu_mem_fraction": "0.5",
            "kv_cache_dtype": "fp8",
            "kv_cache_host_memory_bytes": "1024",
            "guided_decoding_backend": "xgrammar",
            "cuda_graph_mode": "false",
            "sampler_type": "TorchSampler",
        }
    )
    assert settings == LlmApiParameters(
        in_flight=True,
        max_batch_size=64,
        model="owner/repo",
        dtype="bfloat16",
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        gpu_device_ids=(0, 1, 2, 3),
        cache_fraction=0.5,
        cache_dtype="fp8",
        cache_host_bytes=1024,
        guided_decoding="xgrammar",
        cuda_graphs=False,
        sampler_type="TorchSampler",
    )
    assert settings.world_size == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gpu_device_ids": "0;1"}, "gpu_device_ids is '0;1'; legal: different GPU numbers separated by commas"),
        ({"gpu_device_ids": "1,1"}, "legal: different GPU numbers"),
        (
            {"gpu_device_ids": "0", "tensor_parallel_size": "2"},
            "gpu_device_ids names 1 GPUs; tensor_parallel_size 2 x pipeline_parallel_size 1 needs 2",
        ),
        ({"kv_cache_free_gpu_mem_fraction": "0"}, "legal: a number from 0.01 to 1"),
        ({"guided_decoding_backend": "outlines"}, "legal: xgrammar, llguidance"),
        ({"cuda_graph_mode": "on"}, "cuda_graph_mode is 'on'; legal: true, "),
        ({"sampler_type": "auto"}, "legal: TRTLLMSampler, TorchSampler"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name_with_what_is_legal(wrong, message):
    with pytest.raises(BadParameter, match=message):
        read({**MINIMAL, **wrong})


@pytest.fixture
def environment(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_BTL", "SLURM_PROCID"):
        monkeypatch.setenv(name, "")  # So that what the code does is undone.
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("gpu_ids", "visible", "expected"),
    [((0,), None, "0"), ((1, 0), None, "1,0"), ((1,), "4,7", "7"), ((0, 1), "GPU-a,GPU-b", "GPU-a,GPU-b")],
)
def test_the_gpus_are_chosen_among_those_that_are_visible(environment, gpu_ids, visible, expected):
    if visible:
        environment.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert library.import_llmapi(gpu_ids) is llmapi
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_a_gpu_that_is_not_visible_is_refused(environment):
    environment.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with pytest.raises(BadParameter, match="gpu_device_ids names GPU 2; CUDA_VISIBLE_DEVICES shows 2"):
        library.import_llmapi((2,))


def test_without_ids_the_gpus_are_left_alone(environment):
    library.import_llmapi(None)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_the_library_does_not_see_the_launcher_above_the_server(environment):
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_MCA_BTL", "SLURM_PROCID"):
        environment.setenv(name, "1")
    library.import_llmapi(None)
    assert not {"OMPI_COMM_WORLD_RANK", "OMPI_MCA_BTL", "SLURM_PROCID"} & os.environ.keys()


def test_settings_of_mpi_stay_where_no_launcher_is(environment):
    environment.setenv("OMPI_MCA_BTL", "self,tcp")
    library.import_llmapi(None)
    assert os.environ["OMPI_MCA_BTL"] == "self,tcp"


def test_the_model_is_what_is_built_unless_a_parameter_names_another(tmp_path):
    built = built_model(tmp_path)
    assert library.model_of(built, LlmApiParameters(True)) == str(tmp_path)
    assert library.model_of(dataclasses.replace(built, weights="."), LlmApiParameters(True)) == str(tmp_path)
    assert library.model_of(built, LlmApiParameters(True, model="owner/repo")) == "owner/repo"
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    assert library.model_of(built, LlmApiParameters(True, model=str(other))) == str(other)


def test_a_folder_without_a_hugging_face_model_is_refused(tmp_path):
    built = built_model(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(BadParameter, match=r"holds no Hugging Face model: config\.json is missing"):
        library.model_of(built, LlmApiParameters(True))


@pytest.mark.parametrize("builder", ["tensorrt_llm", "openvino"])
def test_a_tier_that_was_built_for_another_library_is_refused_unless_a_model_is_named(tmp_path, builder):
    built = dataclasses.replace(built_model(tmp_path), builder=builder)  # Its folder has a config.json all the same.
    message = rf"built for {builder}: run `python -m scripts\.build_engines .* --for llmapi`"
    with pytest.raises(BadParameter, match=message):
        library.model_of(built, LlmApiParameters(True))
    assert library.model_of(built, LlmApiParameters(True, model=str(tmp_path))) == str(tmp_path)


def test_a_model_with_another_tokenizer_than_the_prompts_is_refused(tmp_path):
    built = built_model(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(BadParameter, match=r"tokenizer.json is not the tokenizer of .*engine.json"):
        library.model_of(built, LlmApiParameters(True))
    same = TokenizerFile("huggingface", "tokenizer.json", tokenizer_files.digest("huggingface", file))
    assert library.model_of(dataclasses.replace(built, tokenizer=same), LlmApiParameters(True)) == str(tmp_path)


def test_the_settings_reach_the_library(tmp_path):
    settings = LlmApiParameters(
        in_flight=True,
        no_evict=False,
        max_batch_size=16,
        cache_tokens=640,
        reuse_cache=False,
        chunked_context=False,
        max_num_tokens=2048,
        cache_fraction=0.3,
        cache_host_bytes=4096,
        cuda_graphs=False,
    )
    given = library.arguments(llmapi, built_model(tmp_path, context_tokens=777), settings)
    assert given["kv_cache_config"] == llmapi.KvCacheConfig(
        enable_block_reuse=False, free_gpu_memory_fraction=0.3, max_tokens=640, host_cache_size=4096, dtype="auto"
    )
    assert given["scheduler_config"].capacity_scheduler_policy == "MAX_UTILIZATION"
    assert (given["max_batch_size"], given["max_num_tokens"], given["max_seq_len"]) == (16, 2048, 777)
    assert (given["enable_chunked_prefill"], given["cuda_graph_config"]) == (False, None)
    assert given["skip_tokenizer_init"] is True


def test_guided_decoding_needs_the_tokenizer(tmp_path):
    given = library.arguments(llmapi, built_model(tmp_path), LlmApiParameters(True, guided_decoding="xgrammar"))
    assert (given["skip_tokenizer_init"], given["guided_decoding_backend"]) == (False, "xgrammar")
