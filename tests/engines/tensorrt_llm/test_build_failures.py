"""engines/tensorrt_llm/build.py: each way in which a build can fail says so in one line, and harms nothing."""

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from bls import manifest
from engines import specs
from engines.specs import Spec
from engines.tensorrt_llm import build
from engines.tensorrt_llm.flags import BUILD, CONVERT
from tests import huggingface_models
from tests.trtllm_world import World

QWEN = CONVERT["qwen"]


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("program", [QWEN, BUILD])
def test_a_failing_program_is_named_with_its_status_its_words_and_the_log(world, capsys, program):
    world.fail(program, status=3, says="[11/30/2026-03:40:00] [TRT-LLM] [E] RuntimeError: no such layer\n[x] [I] bye")
    assert world.build() == 1
    line = last_line(capsys)
    name = program.rpartition("/")[2]
    assert line.startswith(
        f"error: {name} ended with exit status 3: RuntimeError: no such layer (the full output is in "
    )
    log = Path(line.rpartition(" is in ")[2].removesuffix(")"))
    assert "RuntimeError: no such layer" in log.read_text()
    assert world.names() == [".small.lock", ".small.work"]


def test_a_killed_program_is_told_to_have_lacked_memory(world, capsys):
    world.fail(BUILD, status=-9)
    assert world.build() == 1
    assert "trtllm-build was ended by signal 9" in (line := last_line(capsys))
    assert "ran out of memory: lower max_num_tokens or workers, or raise tp_size" in line


@pytest.mark.parametrize("program", [QWEN, BUILD])
def test_a_ctrl_c_ends_the_program_and_leaves_the_engine_that_was_there(world, capsys, program):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background begins with it ignored.
    world.build()
    before = world.inode()
    world.specify(max_batch_size=8)
    pid_file = world.folder / "pid"
    world.monkeypatch.setenv("STAND_IN", json.dumps({"interrupts": program, "pid_file": str(pid_file)}))
    assert world.build() == 130
    assert last_line(capsys) == "stopped; what existed before is untouched"
    assert world.inode() == before
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_failed_build_leaves_the_engine_that_was_there(world):
    world.build()
    before = world.inode()
    world.specify(max_batch_size=8)
    world.fail(BUILD)
    assert world.build() == 1
    assert world.inode() == before
    assert manifest.load(world.built / "small").builder == "tensorrt_llm"


def test_the_checkpoint_of_a_failed_build_is_used_by_the_next_one(world, capsys):
    world.fail(BUILD)
    world.build()
    assert f"its checkpoint is kept for the next build in {world.built / '.small.work'}" in capsys.readouterr().err
    world.go_well()
    world.specify(max_num_tokens=4096)
    assert world.build() == 0
    assert "using the checkpoint of the last attempt" in capsys.readouterr().err
    assert QWEN not in (world.built / "small" / "build.log").read_text()
    assert world.names() == [".small.lock", "small"]


@pytest.mark.parametrize("changes", [{"tp_size": 2}, {"quantisation": "int8_weight_only"}, {"precision": "float16"}])
def test_a_checkpoint_that_was_cut_otherwise_is_not_used(world, changes):
    world.fail(BUILD)
    world.build()
    world.go_well()
    world.specify(**changes)
    assert world.build() == 0
    assert f"{QWEN} reads" in (world.built / "small" / "build.log").read_text()


def test_half_a_checkpoint_is_not_used(world):
    world.fail(QWEN)
    world.build()
    world.go_well()
    assert world.build() == 0


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"without": "rank1.safetensors"}, "checkpoint has no rank1.safetensors"),
        ({"without": "rank1.engine"}, "engine has no rank1.engine"),
        ({"without": "config.json"}, "checkpoint has no config.json"),
    ],
)
def test_a_program_that_ends_well_but_wrote_too_little_is_found_out(world, capsys, told, message):
    world.specify(tp_size=2)
    world.monkeypatch.setenv("STAND_IN", json.dumps(told))
    assert world.build() == 1
    assert last_line(capsys).endswith(message)
    assert "small" not in world.names()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"max_seq_len": 40000}, "max_seq_len is 40000; the model's context is 32768 tokens"),
        (
            {"tp_size": 5},
            "tp_size is 5; the model's 12 attention heads and 2 key-value heads can be divided among 1, 2, 4, 6",
        ),
        (
            {"tp_size": 3},
            "tp_size is 3; the model's 12 attention heads and 2 key-value heads can be divided among 1, 2, 4, 6",
        ),
        ({"pp_size": 29}, "pp_size is 29; the model has 28 layers"),
        ({"quantisation": "int4_awq", "tp_size": 4}, "the model's intermediate_size (8960) can't be split into blocks"),
        ({"model": "no/such/folder"}, "no/such/folder is neither hf:owner/repo nor a folder with config.json"),
    ],
)
def test_a_spec_that_does_not_suit_the_model_is_refused_before_anything_runs(world, capsys, spec, message):
    world.specify(**spec)
    assert world.build() == 1
    assert message in last_line(capsys)
    assert world.names() == [".small.lock"] if "model" not in spec else not world.built.exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gemma3"}, "Tiny-Chat is a model of the type gemma3; engines can be built for llama, mistral"),
        ({"num_hidden_layers": None}, "Tiny-Chat: config.json: num_hidden_layers is missing"),
        ({"hidden_size": "x"}, "Tiny-Chat: config.json: hidden_size is 'x'; it must be a whole number above 0"),
        (
            {"rope_scaling": {"factor": "8"}},
            "Tiny-Chat: config.json: factor of rope_scaling is '8'; it must be a number",
        ),
        ({"quantization_config": {"quant_method": "awq"}}, "the model was saved quantised (awq), which takes"),
    ],
)
def test_a_model_that_cannot_be_built_is_named(world, capsys, config, message):
    huggingface_models.write(world.model, huggingface_models.QWEN | config)
    world.specify(quantisation="fp8")
    assert world.build() == 1
    assert message in last_line(capsys)


def test_the_llm_api_is_not_asked_to_quantise(world, capsys):
    world.specify(quantisation="fp8")
    assert world.build(builder="llmapi") == 1
    assert 'quantisation is "fp8"; the LLM API serves what is saved: name a model' in last_line(capsys)


@pytest.mark.parametrize("missing", ["trtllm-build", "nvidia-smi"])
def test_without_trtllm_build_or_a_gpu_one_line_says_what_to_do(world, capsys, missing):
    (world.programs / missing).unlink()
    assert world.build() == 1
    line = last_line(capsys)
    assert {"trtllm-build": "--dry-run", "nvidia-smi": "--gpus all"}[missing] in line
    assert not (world.built / "small").exists()


def test_a_missing_script_is_named_with_the_flag_that_helps(world, capsys):
    (world.folder / "examples" / QWEN).unlink()
    assert world.build() == 1
    assert "convert_checkpoint.py is missing: name the folder of TensorRT-LLM's examples with --examples" in last_line(
        capsys
    )


@pytest.mark.parametrize(
    ("gpu", "quantisation", "message"),
    [
        ("NVIDIA A100-SXM4-80GB, 8.0", "fp8", "NVIDIA A100-SXM4-80GB has no FP8"),
        ("NVIDIA B200, 10.0", "int4_awq", "NVIDIA B200 is not offered it by TensorRT-LLM: use fp8"),
        ("NVIDIA A100-SXM4-80GB, 8.0", "w4a8_awq", "NVIDIA A100-SXM4-80GB has no FP8"),
        ("NVIDIA H100 80GB HBM3, 9.0", "nvfp4", "NVIDIA H100 80GB HBM3 has no FP4, which Blackwell"),
    ],
)
def test_a_gpu_that_lacks_the_quantisation_is_named(world, capsys, gpu, quantisation, message):
    (world.programs / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{gpu}'\n")
    world.specify(quantisation=quantisation)
    assert world.build() == 1
    assert message in last_line(capsys)


def test_two_builds_of_one_tier_do_not_meet(world, capsys):
    world.built.mkdir(parents=True)
    with (world.built / ".small.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert world.build() == 1
    assert last_line(capsys) == "error: another build of small is running"


def test_a_full_disk_is_foretold(world, capsys, monkeypatch):
    monkeypatch.setattr(build.outputs.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 3}))
    assert world.build() == 1
    assert "the checkpoint and the engine need about" in last_line(capsys)


def test_a_tier_without_the_sub_table_is_named(world, capsys, monkeypatch):
    monkeypatch.setattr(specs, "load", lambda: {"small": Spec("a==1")})
    assert world.build() == 1
    assert last_line(capsys).startswith("error: specs.toml: [small.tensorrt_llm] is missing")
