"""What articles print and no engine has is refused with where it is set, whichever engine it is for."""

import shutil

import pytest

from bls.paths import MODEL_REPOSITORY
from engines.worker import parameters
from scripts.host.preflight import Refused
from scripts.server import article_parameters, server_options

PRINTED = 'parameters {{ key: "{}" value {{ string_value: "1" }} }}\n'


@pytest.mark.parametrize("config_name", [None, "cpu", "llmapi"])
@pytest.mark.parametrize("key", ["batching_strategy", "decoupled_mode", "eviction_policy", "gpu_memory_utilization"])
def test_a_parameter_that_no_engine_has_is_refused_before_the_server_starts(tmp_path, key, config_name):
    model = "tensorrt_llm_large"
    shutil.copytree(MODEL_REPOSITORY / model, tmp_path / model)
    article_parameters.check(tmp_path, [model], config_name)
    file = tmp_path / model / (f"configs/{config_name}.pbtxt" if config_name else "config.pbtxt")
    file.write_text(file.read_text() + PRINTED.format(key))
    with pytest.raises(Refused, match=f"{file}: there is no parameter {key}: "):
        article_parameters.check(tmp_path, [model], config_name)


def test_a_comment_that_names_one_is_none(tmp_path):
    model = tmp_path / "tensorrt_llm_large"
    model.mkdir()
    (model / "config.pbtxt").write_text('backend: "tensorrtllm"\n# ' + PRINTED.format("decoupled_mode"))
    article_parameters.check(tmp_path, [model.name], None)


def test_a_cpu_engine_says_the_same():
    with pytest.raises(parameters.BadParameter, match=r"batching_strategy is unknown; .*gpt_model_type"):
        parameters.read({"gpt_model_type": "V1", "batching_strategy": "inflight"})


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--cuda-graph", "cuda_graph_mode"),
        ("--max_input_length=2048", "engines/specs.toml"),
        ("--rate-limiter=on", "--rate-limit=execution_count"),
        ("--gpus=all", "docker's flag"),
        ("--ulimit=memlock=-1", "docker's flag"),
        ("--fp8_mode", "engines/specs.toml"),
        ("--gpu_memory_utilization=0.9", "kv_cache_free_gpu_mem_fraction"),
        ("--enable_kv_cache_reuse", "config.pbtxt"),
    ],
)
def test_a_flag_that_tritonserver_does_not_have_is_refused_with_what_to_use(flag, said):
    with pytest.raises(Refused, match=f"there is no {flag.partition('=')[0]}: .*{said}"):
        server_options.check_names([flag], ())
