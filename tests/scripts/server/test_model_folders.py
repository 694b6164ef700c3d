from __future__ import annotations

import pytest

from scripts.server import model_folders


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ('backend: "python"', 1),
        ("instance_group [ { count: 32 kind: KIND_CPU } ]", 32),
        ("instance_group { count: 4 }", 4),
        ("instance_group: [ { kind: KIND_CPU }, { count: 2, secondary_devices [ { device_id: 7 } ] } ]", 3),
        ("instance_group { count: 2 } instance_group { count: 3 }", 5),
        ("# instance_group { count: 9 }\ninstance_group { count: 2 # not 9\n }", 2),
        ('parameters { key: "instance_group { count: 9 }" value { string_value: "# {" } }', 1),
        ("instance_group { count: 2 } dynamic_batching { max_queue_size: 9 } parameters { }", 2),
    ],
)
def test_counts_the_instances_of_a_config(config, count):
    assert model_folders.instances(config) == count


def test_adds_up_the_processes_of_python_models_in_the_config_that_will_be_served(tmp_path):
    for name, config in {"router": 'backend: "python" instance_group { count: 32 }', "ensemble": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(config)
    engine = tmp_path / "engine" / "configs"
    engine.mkdir(parents=True)
    (tmp_path / "engine" / "config.pbtxt").write_text('backend: "tensorrtllm" instance_group { count: 5 }')
    (engine / "cpu.pbtxt").write_text('# backend: "onnx"\nbackend: "python"')
    models = ["engine", "ensemble", "router"]
    assert model_folders.names(tmp_path) == models
    assert model_folders.python_instances(tmp_path, models, "cpu") == 33
    assert model_folders.python_instances(tmp_path, models, None) == 32


def test_files_hidden_folders_and_caches_are_no_models(tmp_path):
    for name in ("model", ".hidden", "__pycache__"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").touch()
    assert model_folders.names(tmp_path) == ["model"]


def test_a_config_names_its_backend_as_backend_or_as_platform():
    assert model_folders.backend('name: "x" backend: "tensorrtllm"') == "tensorrtllm"
    assert model_folders.backend('platform: "onnxruntime_onnx"') == "onnxruntime"
    assert model_folders.backend('platform: "ensemble"') == "ensemble"
    assert model_folders.backend("") == ""


def test_a_parameter_is_read_in_either_form_and_not_from_a_comment(tmp_path):
    (tmp_path / "config.pbtxt").write_text(
        '# parameters { key: "a" value { string_value: "comment" } }\n'
        'parameters { key: "a" value { string_value: "1" } }\n'
        'parameters: { key: "b" value: { string_value: "/x#y" } }\n'
    )
    config = model_folders.config(tmp_path, None)
    assert model_folders.parameter(config, "a") == "1"
    assert model_folders.parameter(config, "b") == "/x#y"
    assert model_folders.parameter(config, "c") is None


def test_ensembles_go_with_the_models_that_they_would_load(tmp_path):
    configs = {
        "engine": 'backend: "tensorrtllm"',
        "inner": 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "engine" } ] }',
        "outer": 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "inner" } { model_name: "text" } ] }',
        "text": 'backend: "python"',
    }
    for name, config in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(config)
    models = sorted(configs)
    assert model_folders.without(tmp_path, models, {"engine"}, None) == ["text"]
    assert model_folders.without(tmp_path, models, {"text"}, None) == ["engine", "inner"]
    assert model_folders.without(tmp_path, models, set(), None) == models
