"""engines/tensorrt_llm/build.py with stand-ins for TensorRT-LLM's programs: what is built, and what is left alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bls import manifest
from bls.tokens import byte_table
from bls.tokens.preprocessing import Preprocessor
from bls.tokens.tier_tokenizers import load_tiers
from engines.builders import build as cpu_build
from engines.llmapi.library import model_of
from engines.llmapi.settings import LlmApiParameters
from engines.openvino.pipeline import OpenVinoPipeline
from engines.specs import Spec
from engines.tensorrt_llm.flags import CONVERT, QUANTIZE
from engines.worker.parameters import EngineParameters
from tests import huggingface_models
from tests.fakes import engine_folders
from tests.repository.test_model_repository import REPOSITORY, read
from tests.scripts import test_build_engines
from tests.trtllm_world import World

QWEN = CONVERT["qwen"]


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_the_built_folder_is_where_the_servers_configs_look(world):
    assert world.build() == 0
    parameters = read(REPOSITORY / "tensorrt_llm_small" / "config.pbtxt").parameters
    for name in ("gpt_model_path", "tokenizer_dir", "xgrammar_tokenizer_info_path"):
        path = Path(parameters[name].string_value).relative_to("/engines")
        assert (world.built / path).exists(), name


def test_an_engine_is_built_with_all_of_its_ranks_and_its_log(world, capsys):
    world.specify(tp_size=2, pp_size=2)
    assert world.build() == 0
    files = {file.name for file in (world.built / "small" / "tensorrt_llm").iterdir()}
    assert files == {"config.json", *(f"rank{rank}.engine" for rank in range(4))}
    assert "trtllm-build has written 5 files" in (world.built / "small" / "build.log").read_text()
    assert last_line(capsys).startswith("engine small: Tiny-Chat, 256 tokens of context, for tensorrt_llm")
    assert world.names() == [".small.lock", "small"]


def test_of_all_that_a_program_prints_a_person_sees_a_little(world, capsys):
    world.fail("trtllm-build", says="\n".join(f"layer {number} of 500" for number in range(500)))
    world.build()
    assert capsys.readouterr().err.count("of 500") < 5
    assert (world.built / ".small.work" / "build.log").read_text().count("of 500") == 500


@pytest.mark.parametrize(
    ("quantisation", "program"),
    [
        ("none", QWEN),
        ("int8_weight_only", QWEN),
        ("int4_weight_only", QWEN),
        ("int4_awq", QUANTIZE),
        ("int8_sq", QUANTIZE),
        ("fp8", QUANTIZE),
    ],
)
def test_every_quantisation_is_built_by_its_program(world, quantisation, program):
    world.specify(quantisation=quantisation)
    assert world.build() == 0
    assert f"{program} reads" in (world.built / "small" / "build.log").read_text()


def test_the_manifest_says_what_the_engine_can_do(world):
    world.build()
    engine = manifest.load(world.built / "small")
    assert (engine.name, engine.builder, engine.weights) == ("Tiny-Chat", "tensorrt_llm", "tensorrt_llm")
    assert (engine.context_tokens, engine.vocab_size) == (256, 1024)
    assert (engine.end_ids, engine.tokenizer.path) == ((0, 7), "tokenizer/tokenizer.json")
    assert byte_table.open_table(engine.token_bytes_path, engine.tokenizer.sha256).is_supported


def test_the_tokenizer_models_serve_what_was_built(world):
    assert world.build(tiers=("small", "large")) == 0
    loaded = load_tiers(engine_folders(world.folder / "model_repository"))
    messages = np.array([[b'[{"role": "user", "content": "The quick"}]']], np.object_)
    answer = Preprocessor(loaded).answer({"MESSAGES": messages}, frozenset({"INPUT_ID", "OUT_END_ID"}))
    tokenizer = loaded["large"].tokenizer
    assert tokenizer.decode(answer["INPUT_ID"][0].tolist(), skip_special_tokens=False) == "The quick<|end|>"
    assert answer["OUT_END_ID"].tolist() == [[0]]


def test_the_llm_api_gets_the_model_as_it_is(world):
    world.monkeypatch.setenv("PATH", "/usr/bin:/bin")  # It needs no TensorRT-LLM to prepare.
    assert world.build(builder="llmapi") == 0
    engine = manifest.load(world.built / "small")
    assert (engine.builder, engine.context_tokens) == ("llmapi", 256)
    names = {file.name for file in engine.weights_path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= names
    assert (engine.weights_path / "model.safetensors").samefile(world.model / "model.safetensors")
    assert model_of(engine, LlmApiParameters(in_flight=True)) == str(engine.weights_path)


def test_an_engine_on_a_cpu_says_that_the_tier_was_built_for_gpus(world):
    world.build()
    message = r"was built for tensorrt_llm; for a CPU run `python -m scripts\.build_engines small`"
    with pytest.raises(manifest.BadManifest, match=message):
        OpenVinoPipeline(manifest.load(world.built / "small"), EngineParameters(in_flight=True))


def test_a_build_needs_no_package_that_nvidias_image_lacks():
    absent = ["openvino", "openvino_genai", "onnx", "onnxruntime", "grpc", "tritonclient", "torch", "transformers"]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import scripts.build_engines"
    subprocess.run([sys.executable, "-c", code], check=True)


# What is there already.


def test_what_is_up_to_date_is_left_alone_and_force_builds_it_anew(world, capsys):
    world.build()
    before = world.inode()
    assert world.build() == 0
    assert "is up to date" in capsys.readouterr().err
    assert world.inode() == before
    world.build("--force")
    assert world.inode() != before


@pytest.mark.parametrize("changes", [{"max_batch_size": 8}, {"quantisation": "int4_awq"}, {"max_seq_len": 100}])
def test_another_spec_is_another_engine(world, changes):
    world.build()
    before = world.inode()
    world.specify(**changes)
    world.build()
    assert world.inode() != before


def test_force_makes_the_checkpoint_anew_too(world):
    world.fail("trtllm-build")
    world.build()
    world.go_well()
    world.build("--force")
    assert f"{QWEN} reads" in (world.built / "small" / "build.log").read_text()


def test_the_number_of_workers_makes_no_other_engine(world):
    world.build()
    before = world.inode()
    world.specify(workers=7)
    world.build()
    assert world.inode() == before


def test_an_engine_of_another_gpu_or_another_model_is_built_anew(world):
    world.build()
    before = world.inode()
    (world.programs / "nvidia-smi").write_text("#!/bin/sh\nprintf 'NVIDIA H100, 9.0'\n")
    world.build()
    assert (on_h100 := world.inode()) != before
    (world.model / "model.safetensors").write_bytes(b"other weights")
    world.build()
    assert world.inode() != on_h100


def test_where_the_gpu_cannot_be_seen_a_built_engine_still_counts(world, capsys):
    world.build()
    (world.programs / "nvidia-smi").unlink()
    assert world.build() == 0
    assert "is up to date" in capsys.readouterr().err


def test_each_builder_replaces_the_others_folder_whole(world):
    world.build()
    world.build(builder="llmapi")
    assert not (world.built / "small" / "tensorrt_llm").exists()
    gguf = test_build_engines.gguf(world.folder)
    cpu_build.build(world.built, "small", Spec(str(gguf)), lambda text: None)
    assert not (world.built / "small" / "model").exists()
    world.build()
    assert manifest.load(world.built / "small").builder == "tensorrt_llm"


# An engine that was built elsewhere, and the commands to do so.


def test_the_printed_commands_build_what_the_build_itself_builds(world, capsys):
    assert world.build("--dry-run") == 0
    commands = capsys.readouterr().out
    assert not world.built.exists()
    *steps, last = commands.split("\npython3 -m scripts.build_engines")
    subprocess.run(["sh", "-ec", "\n".join(steps)], check=True, capture_output=True)
    engine = last.split("--engine ")[1].strip()
    assert world.build("--engine", engine) == 0
    assert manifest.load(world.built / "small").weights_path.joinpath("rank0.engine").is_file()


def test_an_engine_of_other_sizes_is_refused(world, capsys):
    world.build()
    engine = world.built / "small" / "tensorrt_llm"
    world.specify(max_batch_size=8)
    assert world.build("--engine", str(engine), tiers=("large",)) == 1
    assert last_line(capsys).endswith("the engine's max_batch_size is 64; specs.toml has 8")


def test_an_engine_of_another_model_is_refused(world, capsys):
    world.build()
    huggingface_models.write(world.model, huggingface_models.LLAMA)
    assert world.build("--engine", str(world.built / "small" / "tensorrt_llm"), tiers=("large",)) == 1
    message = "the engine's hidden_size is 1536; that of Tiny-Chat is 4096: it was built from another model"
    assert last_line(capsys).endswith(message)


def test_an_engine_of_a_model_that_is_not_built_here_is_taken(world):
    world.build()
    huggingface_models.write(world.model, huggingface_models.QWEN | {"model_type": "gemma2"})
    assert world.build(tiers=("large",)) == 1
    assert world.build("--engine", str(world.built / "small" / "tensorrt_llm"), tiers=("large",)) == 0
    assert manifest.load(world.built / "large").weights_path.joinpath("rank0.engine").is_file()


def test_a_dry_run_needs_neither_trtllm_build_nor_a_gpu(world, capsys):
    world.monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert world.build("--dry-run", tiers=("small", "large")) == 0
    assert capsys.readouterr().out.count("trtllm-build \\\n  --checkpoint_dir") == 2


def test_a_dry_run_for_the_llm_api_says_that_no_engine_is_built_and_what_to_run(world, capsys):
    assert world.build("--dry-run", builder="llmapi") == 0
    out = capsys.readouterr().out
    assert "no engine is built" in out and "configs/llmapi.pbtxt" in out
    assert "python3 -m scripts.build_engines small --for llmapi\nscripts/serve gpu --engine llmapi" in out


def test_an_engine_is_refused_where_there_is_none(world, capsys):
    with pytest.raises(SystemExit):
        world.build("--engine", "x", builder="llmapi")
    assert "--engine needs --for tensorrt_llm" in capsys.readouterr().err
