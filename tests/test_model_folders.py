from __future__ import annotations

import pytest

from scripts import model_folders


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
