"""Each config.pbtxt, and each variant of it, says what bls/contract.py says."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.contract import LARGE, LLAMA_7B, ROUTER, SMALL, TEXT_CLASSIFIER, contract_of
from bls.paths import ROOT
from engines.classifier.labels import LABELS

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
    for folder in REPOSITORY.iterdir():
        assert contract_of(folder.name), folder
        assert (folder / "config.pbtxt").is_file() or list(folder.glob("configs/*.pbtxt"))
        assert (folder / "1").is_dir()


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_the_name_is_the_folders(path, config):
    """The router's has none, so that a link serves it under a second name."""
    assert config.name == ("" if name_of(path) == ROUTER else name_of(path))


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_inputs_are_those_of_the_contract(path, config):
    contract = contract_of(name_of(path))
    assert [as_declared(tensor) for tensor in config.input] == [
        (tensor.name, tensor.datatype, tensor.dims, tensor.scalar) for tensor in contract.inputs
    ]
    assert {tensor.name for tensor in config.input if tensor.optional} == {
        tensor.name for tensor in contract.inputs if tensor.optional
    }


@pytest.mark.parametrize(("path", "config"), CONFIGS)
def test_outputs_are_those_of_the_contract(path, config):
    classes = {"logits", "labels", "scores"} if config.platform == "onnxruntime_onnx" else {}
    assert [as_declared(tensor) for tensor in config.output] == [
        (tensor.name, tensor.datatype, (len(LABELS),) if tensor.name in classes else tensor.dims, tensor.scalar)
        for tensor in contract_of(name_of(path)).outputs
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


@pytest.mark.parametrize(
    ("path", "config"), [given for given in ENGINE_CONFIGS if given.values[0].name != "remote.pbtxt"]
)
def test_an_engine_states_its_batching_and_its_cache(path, config):
    assert config.parameters["gpt_model_type"].string_value == "inflight_fused_batching"
    assert config.parameters["enable_kv_cache_reuse"].string_value in ("true", "false")


@pytest.mark.parametrize(
    "model", ["preprocessing", "postprocessing", "sensitive_words", "text_tokenizer", "text_classifier_onnx"]
)
def test_what_every_request_waits_for_has_a_queue_that_lets_triton_hand_batches_on_ahead(model):
    # Else Triton 2.51 hands a batch on only to an instance that waits, and may notice it half a second late.
    for path in [REPOSITORY / model / "config.pbtxt", *(REPOSITORY / model).glob("configs/*.pbtxt")]:
        batching = read(path).dynamic_batching
        policy = batching.default_queue_policy
        assert not (policy.max_queue_size or policy.default_timeout_microseconds or policy.allow_timeout_override)
        assert batching.priority_levels == 0


def test_the_router_has_a_bounded_queue_with_three_priorities_and_a_timeout():
    config = read(REPOSITORY / "llm_router" / "config.pbtxt")
    batching = config.dynamic_batching
    assert batching.priority_levels == 3
    assert batching.default_queue_policy.max_queue_size > 0
    assert batching.default_queue_policy.default_timeout_microseconds > 0
    assert batching.default_queue_policy.allow_timeout_override
    assert config.model_transaction_policy.decoupled


def test_nothing_else_of_bls_knows_triton():
    users = {path.name for path in (ROOT / "bls").rglob("*.py") if "pb_utils" in path.read_text()}
    assert users == {"triton_io.py"}


ENSEMBLES = [given for given in CONFIGS if given.values[1].platform == "ensemble"]


@pytest.mark.parametrize(("path", "config"), ENSEMBLES)
def test_each_step_of_an_ensemble_fits_its_model(path, config):
    for step in config.ensemble_scheduling.step:
        contract = contract_of(step.model_name)
        needed = {tensor.name for tensor in contract.inputs if not tensor.optional}
        assert needed <= set(step.input_map) <= contract.input_names
        assert set(step.output_map) <= contract.output_names
        assert set(step.output_map)


@pytest.mark.parametrize(("path", "config"), ENSEMBLES)
def test_each_tensor_of_an_ensemble_comes_from_one_place_and_is_used(path, config):
    steps = config.ensemble_scheduling.step
    given = {tensor.name for tensor in config.input}
    made = [name for step in steps for name in step.output_map.values()]
    used = {name for step in steps for name in step.input_map.values()}
    wanted = {tensor.name for tensor in config.output}
    assert len(set(made)) == len(made)
    assert not given & set(made)
    assert used <= given | set(made)
    assert given | set(made) == used | wanted


@pytest.mark.parametrize(("path", "config"), ENSEMBLES)
def test_an_ensembles_tensors_keep_their_type_from_step_to_step(path, config):
    types = {tensor.name: model_config_pb2.DataType.Name(tensor.data_type) for tensor in config.input}
    for step in config.ensemble_scheduling.step:
        contract = contract_of(step.model_name)
        inputs = {tensor.name: tensor.datatype for tensor in contract.inputs}
        outputs = {tensor.name: tensor.datatype for tensor in contract.outputs}
        assert {types[name] == inputs[key] for key, name in step.input_map.items()} == {True}
        types |= {name: outputs[key] for key, name in step.output_map.items()}
    for tensor in config.output:
        assert types[tensor.name] == model_config_pb2.DataType.Name(tensor.data_type)


@pytest.mark.parametrize(("path", "config"), ENSEMBLES)
def test_an_ensemble_takes_no_larger_batch_than_its_steps(path, config):
    for step in config.ensemble_scheduling.step:
        steps_own = [given.values[1].max_batch_size for given in CONFIGS if given.values[1].name == step.model_name]
        assert steps_own
        assert all(config.max_batch_size <= size for size in steps_own)


@pytest.mark.parametrize(("path", "config"), [given for given in CONFIGS if name_of(given.values[0]) == LLAMA_7B])
def test_the_batched_engine_is_as_published(path, config):
    assert not config.model_transaction_policy.decoupled
    assert config.max_batch_size == 16
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8, 16]
    assert config.dynamic_batching.max_queue_delay_microseconds == 5000
    assert sum(group.count for group in config.instance_group) == 2
    assert config.parameters["gpt_model_type"].string_value in ("V1", "inflight_fused_batching")


CLASSIFIER_CONFIGS = [given for given in CONFIGS if name_of(given.values[0]) == TEXT_CLASSIFIER]


@pytest.mark.parametrize(("path", "config"), CLASSIFIER_CONFIGS)
def test_the_classifier_batches_as_published_and_never_with_one_instance(path, config):
    assert list(config.dynamic_batching.preferred_batch_size) == [8, 16, 32, 64]
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    assert (config.max_batch_size, sum(group.count for group in config.instance_group)) == (64, 2)


@pytest.mark.parametrize(("path", "config"), CLASSIFIER_CONFIGS)
def test_texts_of_different_lengths_share_a_batch_where_the_model_pads_them(path, config):
    """ONNX Runtime's backend would string the ids of all texts together instead."""
    assert {tensor.allow_ragged_batch for tensor in config.input} == {config.backend == "python"}


def test_the_classifiers_files_are_links_to_what_is_built():
    for name in ("model.onnx", "weights.bin"):
        link = REPOSITORY / TEXT_CLASSIFIER / "1" / name
        assert link.is_symlink()
        assert (link.parent / link.readlink()).resolve() == ROOT / "engines" / "built" / "classifier" / name
