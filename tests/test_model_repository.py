"""Each config.pbtxt, and each variant of it, says what bls/contract.py says."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

import bls
from bls.contract import CONTRACTS, ENGINE, LARGE, SMALL

ROOT = Path(bls.__file__).resolve().parent.parent
REPOSITORY = ROOT / "model_repository"
FILES = sorted(REPOSITORY.glob("*/config.pbtxt")) + sorted(REPOSITORY.glob("*/configs/*.pbtxt"))


def name_of(path):
    return path.relative_to(REPOSITORY).parts[0]


def read(path):
    return text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())


CONFIGS = [pytest.param(path, read(path), id=str(path.relative_to(REPOSITORY))) for path in FILES]
ENGINE_CONFIGS = [given for given in CONFIGS if name_of(given.values[0]) in (SMALL, LARGE)]


def as_declared(tensor):
    scalar = tensor.HasField("reshape") and list(tensor.reshape.shape) == []
    kind = model_config_pb2.DataType.Name(tensor.data_type)
    return tensor.name, kind, tuple(tensor.dims), scalar


def test_only_models_stand_in_the_repository_and_each_has_a_contract():
    assert {path.name for path in REPOSITORY.iterdir()} == set(CONTRACTS)
    for folder in REPOSITORY.iterdir():
        assert (folder / "config.pbtxt").is_file() or list(folder.glob("configs/*.pbtxt"))
        assert (folder / "1").is_dir()


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_the_name_is_the_folders(path, config):
    assert config.name == name_of(path)


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_inputs_are_those_of_the_contract(path, config):
    contract = CONTRACTS[name_of(path)]
    assert [as_declared(tensor) for tensor in config.input] == [
        (tensor.name, tensor.datatype, tensor.dims, tensor.scalar) for tensor in contract.inputs
    ]
    assert {tensor.name for tensor in config.input if tensor.optional} == {
        tensor.name for tensor in contract.inputs if tensor.optional
    }


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_outputs_are_those_of_the_contract(path, config):
    assert [as_declared(tensor) for tensor in config.output] == [
        (tensor.name, tensor.datatype, tensor.dims, tensor.scalar) for tensor in CONTRACTS[name_of(path)].outputs
    ]


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_every_instance_is_a_cpu_instance_and_none_is_rate_limited(path, config):
    for group in config.instance_group:
        assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_CPU
        assert not group.HasField("rate_limiter")  # A request inside the rate limiter can't be cancelled.


@pytest.mark.parametrize(("path", "config"), ENGINE_CONFIGS)
def test_an_engine_is_one_decoupled_instance_without_a_queue_delay(path, config):
    assert config.model_transaction_policy.decoupled
    assert sum(group.count for group in config.instance_group) == 1
    # In-flight batching happens in the engine; waiting for a batch in front of it only adds latency.
    assert config.dynamic_batching.max_queue_delay_microseconds == 0
    assert not config.dynamic_batching.preferred_batch_size


@pytest.mark.parametrize(("path", "config"), ENGINE_CONFIGS)
def test_an_engine_states_its_batching_and_its_cache(path, config):
    assert config.parameters["gpt_model_type"].string_value == "inflight_fused_batching"
    assert config.parameters["enable_kv_cache_reuse"].string_value in ("true", "false")


def test_two_engines_share_one_gpu_by_explicit_fractions():
    fractions = [
        float(read(REPOSITORY / model / "config.pbtxt").parameters["kv_cache_free_gpu_mem_fraction"].string_value)
        for model in (SMALL, LARGE)
    ]
    assert all(0 < fraction < 0.9 for fraction in fractions)


def test_the_router_has_a_bounded_queue_with_three_priorities_and_a_timeout():
    config = read(REPOSITORY / "llm_router" / "config.pbtxt")
    batching = config.dynamic_batching
    assert batching.priority_levels == 3
    assert batching.default_queue_policy.max_queue_size > 0
    assert batching.default_queue_policy.default_timeout_microseconds > 0
    assert batching.default_queue_policy.allow_timeout_override
    assert config.model_transaction_policy.decoupled


def test_both_engines_keep_one_contract():
    assert CONTRACTS[SMALL] is CONTRACTS[LARGE] is ENGINE


def test_nothing_else_of_bls_knows_triton():
    users = {path.name for path in (ROOT / "bls").glob("*.py") if "pb_utils" in path.read_text()}
    assert users == {"triton_io.py"}
