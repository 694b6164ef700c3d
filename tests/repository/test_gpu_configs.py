"""The engines' configs for GPUs: TensorRT-LLM's C++ backend (config.pbtxt) and its LLM API (configs/llmapi.pbtxt)."""

from fractions import Fraction
from itertools import pairwise

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.contract import LARGE, LLAMA_7B, SMALL
from bls.paths import MODEL_REPOSITORY
from bls.tiers import engine_models, tier_of
from engines import specs
from engines.llmapi.settings import LlmApiParameters
from engines.triton import libraries
from scripts.plan import __main__ as plan

MODELS = (SMALL, LARGE, LLAMA_7B)
IN_FLIGHT = (SMALL, LARGE)
TIERS = {SMALL: "small", LARGE: "large", LLAMA_7B: "large"}
BACKEND, LLM_API = "config.pbtxt", "configs/llmapi.pbtxt"
FILES = [(model, file) for model in MODELS for file in (BACKEND, LLM_API)]
MOST_QUEUE_DELAY_US = 100_000


def text(model, file=BACKEND):
    return (MODEL_REPOSITORY / model / file).read_text()


def config(model, file=BACKEND):
    return text_format.Parse(text(model, file), model_config_pb2.ModelConfig())


def parameters(model, file=BACKEND):
    return {key: value.string_value for key, value in config(model, file).parameters.items()}


@pytest.mark.parametrize(("model", "file"), FILES)
def test_nothing_is_left_to_be_filled_in_and_no_key_is_given_twice(model, file):
    written = text(model, file)
    assert "${" not in written
    assert written.count("parameters {") == len(parameters(model, file))


@pytest.mark.parametrize(("model", "file"), FILES)
def test_every_parameter_has_its_reason_above_it(model, file):
    lines = text(model, file).splitlines()
    for above, line in pairwise(lines):
        if line.startswith("parameters") and "pipeline_parallel_size" not in line:  # Said with the one before.
            assert above.startswith("# "), line


@pytest.mark.parametrize("file", [BACKEND, LLM_API])
def test_the_engines_on_one_gpu_leave_room_for_the_last_one_to_load(file):
    fractions = []
    for model in MODELS:
        instances = config(model, file).instance_group[0].count if file == BACKEND else 1  # Doors to one engine.
        fractions += [Fraction(parameters(model, file)["kv_cache_free_gpu_mem_fraction"])] * instances
    assert all(0 < fraction < 0.9 for fraction in fractions)
    assert sum(fractions) <= Fraction("0.95")


@pytest.mark.parametrize(
    ("gpu", "further"),
    [
        ("A100-40GB", ()),
        ("H200", ()),
        ("H100-NVL", ("--llama-7b", "instances=2")),
        ("L40S", ("--for", "llmapi")),
        ("H100-NVL", ("--for", "llmapi", "--llama-7b")),
    ],
)
def test_the_shipped_models_and_caches_fit_in_whatever_order_they_load(capsys, gpu, further):
    own = [f"--{tier_of(model)}=none" for model in engine_models() if model not in (SMALL, LARGE)]
    status = plan.main(["--gpu", gpu, "--check", *own, *further], MODEL_REPOSITORY)
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize(("model", "file"), FILES)
def test_a_cache_holds_the_longest_request_in_whole_blocks(model, file):
    tokens = int(parameters(model, file)["max_tokens_in_paged_kv_cache"])
    assert tokens % 32 == 0
    assert tokens >= specs.load()[TIERS[model]].tensorrt_llm.max_seq_len


@pytest.mark.parametrize(("model", "file"), FILES)
def test_what_changed_its_default_between_versions_is_said(model, file):
    given = parameters(model, file)
    for key in ("enable_kv_cache_reuse", "enable_chunked_context", "exclude_input_in_output"):
        assert given[key] == "true"  # The C++ backend takes no other word for yes.
    assert given["gpt_model_type"] == "inflight_fused_batching"
    assert given["batch_scheduler_policy"] == "guaranteed_no_evict"
    assert int(given["kv_cache_host_memory_bytes"]) >= 0
    assert 10 <= int(given["cancellation_check_period_ms"]) <= 100
    assert 10 <= int(given["stats_check_period_ms"]) <= 1000


@pytest.mark.parametrize(("model", "file"), FILES)
def test_a_queue_has_an_end(model, file):
    written = config(model, file)
    in_triton = written.dynamic_batching.default_queue_policy.max_queue_size
    assert in_triton > 0 or int(parameters(model, file)["max_queue_size"]) > 0


@pytest.mark.parametrize("file", [BACKEND, LLM_API])
@pytest.mark.parametrize("model", IN_FLIGHT)
def test_an_in_flight_engine_is_one_decoupled_instance_that_triton_doesnt_batch_for(model, file):
    written = config(model, file)
    (group,) = written.instance_group
    assert (group.count, group.kind) == (1, model_config_pb2.ModelInstanceGroup.KIND_CPU)
    assert not group.HasField("rate_limiter")
    assert written.model_transaction_policy.decoupled
    assert not written.dynamic_batching.preferred_batch_size
    assert written.dynamic_batching.max_queue_delay_microseconds <= MOST_QUEUE_DELAY_US


@pytest.mark.parametrize("model", MODELS)
def test_the_backend_finds_every_key_that_must_exist_and_none_that_stops_its_load(model):
    assert config(model).backend == "tensorrtllm"
    given = parameters(model)
    must_exist = {"gpt_model_path", "tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path"}
    assert must_exist | {"decoding_mode", "max_beam_width", "executor_worker_path"} <= set(given)
    assert not {"worker_path", "cross_kv_cache_fraction", "encoder_model_path"} & set(given)
    folder = f"/engines/{TIERS[model]}/"
    assert all(given[key].startswith(folder) for key in must_exist - {"guided_decoding_backend"})
    assert given["decoding_mode"] == "top_k_top_p" and given["max_beam_width"] == "1"


@pytest.mark.parametrize("model", MODELS)
def test_the_llm_apis_parameters_are_read_and_suit_the_models_that_are_built(model):
    written = config(model, LLM_API)
    assert written.backend == "python"
    library, settings = libraries.choose(parameters(model, LLM_API))
    assert library.pipeline == "engines.llmapi.pipeline:LlmApiPipeline"
    assert isinstance(settings, LlmApiParameters)
    spec = specs.load()[TIERS[model]].tensorrt_llm
    assert (settings.max_batch_size, settings.max_num_tokens) == (spec.max_batch_size, spec.max_num_tokens)
    assert (settings.tensor_parallel_size, settings.pipeline_parallel_size) == (spec.tp_size, spec.pp_size)
    assert (settings.cache_dtype, settings.model) == (spec.kv_cache_dtype, "")
