"""engines/tensorrt_llm/build.py with stand-ins for TensorRT-LLM's programs, through scripts/build_engines."""

import fcntl
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bls import manifest, token_bytes
from bls.preprocessing import Preprocessor
from bls.tiers import load_tiers
from engines import build as cpu_build
from engines import specs
from engines.specs import Spec
from engines.tensorrt_llm import build
from engines.tensorrt_llm.flags import BUILD, CONVERT, QUANTIZE
from engines.tensorrt_llm.spec import GpuSpec
from scripts import build_engines
from tests import huggingface_models, test_build_engines, trtllm_stand_in
from tests.test_model_repository import REPOSITORY, read

QWEN = CONVERT["qwen"]


class World:
    """A machine with TensorRT-LLM's stand-ins, specs with one model for both tiers, and the folder of built engines."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.built = folder / "engines" / "built"
        self.model = huggingface_models.write(folder / "Tiny-Chat", eos_token_id=[0, 7])
        self.programs = trtllm_stand_in.install(folder)
        monkeypatch.setenv("PATH", f"{self.programs}:/usr/bin:/bin")
        self.specify()

    def specify(self, **fields):
        self.spec = GpuSpec(**({"model": str(self.model), "max_seq_len": 256} | fields))
        tier = Spec("a==1", tensorrt_llm=self.spec)
        self.monkeypatch.setattr(specs, "load", lambda: {"small": tier, "large": tier})

    def fail(self, program, **how):
        self.monkeypatch.setenv("STAND_IN", json.dumps({"fails": program} | how))

    def go_well(self):
        self.monkeypatch.delenv("STAND_IN")

    def build(self, *arguments, tiers=("small",), builder="tensorrt_llm"):
        examples = ["--examples", str(self.folder / "examples")]
        return build_engines.main([*tiers, "--for", builder, *examples, *arguments], self.built)

    def names(self):
        return sorted(path.name for path in self.built.iterdir())


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


@pytest.mark.parametrize(
    ("quantisation", "program"),
    [
        ("none", QWEN),
        ("int8_weight_only", QWEN),
        ("int4_weight_only", QWEN),
        ("int4_awq", QUANTIZE),
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
    assert token_bytes.open_table(engine.token_bytes_path, engine.tokenizer.sha256).is_supported


def test_the_tokenizer_models_serve_what_was_built(world):
    assert world.build(tiers=("small", "large")) == 0
    loaded = load_tiers(world.folder / "model_repository")
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


# What is there already.


def inode(world):
    return (world.built / "small").stat().st_ino


def test_what_is_up_to_date_is_left_alone_and_force_builds_it_anew(world, capsys):
    world.build()
    before = inode(world)
    assert world.build() == 0
    assert "is up to date" in capsys.readouterr().err
    assert inode(world) == before
    world.build("--force")
    assert inode(world) != before


@pytest.mark.parametrize("changes", [{"max_batch_size": 8}, {"quantisation": "int4_awq"}, {"max_seq_len": 100}])
def test_another_spec_is_another_engine(world, changes):
    world.build()
    before = inode(world)
    world.specify(**changes)
    world.build()
    assert inode(world) != before


def test_the_number_of_workers_makes_no_other_engine(world):
    world.build()
    before = inode(world)
    world.specify(workers=7)
    world.build()
    assert inode(world) == before


def test_an_engine_of_another_gpu_or_another_model_is_built_anew(world):
    world.build()
    before = inode(world)
    (world.programs / "nvidia-smi").write_text("#!/bin/sh\nprintf 'NVIDIA H100, 9.0'\n")
    world.build()
    assert (on_h100 := inode(world)) != before
    (world.model / "model.safetensors").write_bytes(b"other weights")
    world.build()
    assert inode(world) != on_h100


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


# What fails.


@pytest.mark.parametrize("program", [QWEN, BUILD])
def test_a_failing_program_is_named_with_its_status_its_words_and_the_log(world, capsys, program):
    world.fail(program, status=3, says="[11/30/2026-03:40:00] [TRT-LLM] [E] RuntimeError: no such layer\n[x] [I] bye")
    assert world.build() == 1
    line = last_line(capsys)
    name = program.rpartition("/")[2]
    assert line.startswith(f"error: {name} ended with exit status 3: RuntimeError: no such layer (all of it: ")
    log = Path(line.rpartition(": ")[2].removesuffix(")"))
    assert "RuntimeError: no such layer" in log.read_text()
    assert world.names() == [".small.lock", ".small.work"]


def test_a_killed_program_is_told_to_have_lacked_memory(world, capsys):
    world.fail(BUILD, status=-9)
    assert world.build() == 1
    assert "trtllm-build was ended by signal 9" in (line := last_line(capsys))
    assert "memory ran out: lower max_num_tokens or workers, or raise tp_size" in line


def test_a_failed_build_leaves_the_engine_that_was_there(world):
    world.build()
    before = inode(world)
    world.specify(max_batch_size=8)
    world.fail(BUILD)
    assert world.build() == 1
    assert inode(world) == before
    assert manifest.load(world.built / "small").builder == "tensorrt_llm"


def test_the_checkpoint_of_a_failed_build_is_used_by_the_next_one(world, capsys):
    world.fail(BUILD)
    world.build()
    world.go_well()
    world.specify(max_num_tokens=4096)
    assert world.build() == 0
    assert "using the checkpoint of the last try" in capsys.readouterr().err
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
        ({"tp_size": 5}, "tp_size is 5; it must divide the model's 12 attention heads"),
        ({"tp_size": 3}, "tp_size is 3; the model's 2 key-value heads can't be shared so"),
        ({"pp_size": 29}, "pp_size is 29; the model has 28 layers"),
        ({"quantisation": "int4_awq", "tp_size": 4}, "the model's intermediate_size (8960) can't be cut into blocks"),
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
        ({"model_type": "gemma3"}, "Tiny-Chat is a model of the type gemma3; engines can be built of llama, mistral"),
        ({"num_hidden_layers": None}, "Tiny-Chat: config.json: "),
        ({"quantization_config": {"quant_method": "awq"}}, "the model is saved quantised (awq), which takes"),
    ],
)
def test_a_model_that_cannot_be_built_is_named(world, capsys, config, message):
    huggingface_models.write(world.model, huggingface_models.QWEN | config)
    world.specify(quantisation="fp8")
    assert world.build() == 1
    assert message in last_line(capsys)


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
    assert "convert_checkpoint.py is missing: name the folder of TensorRT-LLM's examples by --examples" in last_line(
        capsys
    )


@pytest.mark.parametrize(
    ("gpu", "quantisation", "message"),
    [
        ("NVIDIA A100-SXM4-80GB, 8.0", "fp8", "NVIDIA A100-SXM4-80GB has no FP8"),
        ("NVIDIA B200, 10.0", "int4_awq", "TensorRT-LLM has none such for NVIDIA B200: use fp8"),
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


def test_a_dry_run_needs_neither_trtllm_build_nor_a_gpu(world, capsys):
    world.monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert world.build("--dry-run", tiers=("small", "large")) == 0
    assert capsys.readouterr().out.count("trtllm-build \\\n  --checkpoint_dir") == 2


@pytest.mark.parametrize("arguments", [["--dry-run"], ["--engine", "x"]])
def test_flags_of_engines_are_refused_where_there_is_none(world, capsys, arguments):
    with pytest.raises(SystemExit):
        world.build(*arguments, builder="llmapi")
    assert "--dry-run and --engine go with --for tensorrt_llm" in capsys.readouterr().err
