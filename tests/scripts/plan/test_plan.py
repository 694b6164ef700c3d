"""scripts/plan/__main__.py: what a person types, reads and what programs get."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from bls.paths import MODEL_REPOSITORY
from bls.tiers import tiers
from engines.gpu_memory.sizes import GIB
from scripts.plan import __main__ as plan
from scripts.plan import check

PAIR = ("--small", "model=Qwen2.5-1.5B", "max_seq_len=4096", "--large", "model=Qwen2.5-7B", "max_seq_len=8192")
OTHERS = [tier for tier in tiers() if tier not in ("small", "large")]  # which you may have added


def run(capsys, *arguments, repository=MODEL_REPOSITORY):
    """Exit status, standard output, standard error."""
    others = [word for tier in OTHERS for word in (f"--{tier}", "none")] if "--help" not in arguments else []
    status = plan.main([*arguments, *others], repository)
    return status, *capsys.readouterr()


def test_the_shipped_specs_are_planned_without_being_named(capsys):
    status, table, _ = run(capsys, "--gpu", "H100-80GB")
    assert status == 0
    assert "hf:Qwen/Qwen2.5-1.5B-Instruct" in table and "hf:Qwen/Qwen2.5-7B-Instruct" in table
    assert "model_repository/tensorrt_llm_large/config.pbtxt:" in table


def test_every_number_of_the_json_is_in_the_table(capsys):
    report = json.loads(run(capsys, "--gpu", "L40S", *PAIR, "--json")[1])
    table = run(capsys, "--gpu", "L40S", *PAIR)[1]
    assert report["fits"]
    for model in report["models"]:
        for key in ("parameters", "kv_bytes_per_token", "kv_tokens", "kv_blocks", "max_num_tokens", "max_seq_len"):
            assert f"{model[key]:,}" in table
        for size in model["bytes"].values():
            assert not size or f"{size / GIB:.2f} GiB" in table
        for line in model["lines"]:
            assert line in table
        assert model["kv_blocks"] * 32 == model["kv_tokens"] == model[check.CAP]


def test_the_lines_for_the_specs_make_the_same_plan_without_any_key(tmp_path, capsys):
    arguments = ("--gpu", "2xH100-80GB", "--small", "none", "--json", "--large")
    keys = ("model=hf:Qwen/Qwen2.5-14B-Instruct", "tp_size=2", "quantisation=fp8", "max_seq_len=4096")
    (typed,) = json.loads(run(capsys, *arguments, *keys)[1])["models"]
    assert typed["specs_lines"][-1] == "# without max_input_len"
    specs_file = tmp_path / "specs.toml"
    lines = ["[small]", 'source="a==1"', "[large]", 'source="a==1"', f"[{typed['specs_table']}]", *typed["specs_lines"]]
    lines += [f'[{tier}]\nsource="a==1"' for tier in OTHERS]
    specs_file.write_text("\n".join([*lines, ""]))
    (again,) = json.loads(run(capsys, *arguments, "--specs", str(specs_file))[1])["models"]
    assert again["specs_lines"] == []
    assert again["lines"] == typed["lines"]


def test_what_the_specs_say_already_is_not_said_again_and_an_owner_is_asked_for(capsys):
    assert "engines/specs.toml" not in run(capsys, "--gpu", "H200", "--llama-7b")[1]
    table = run(capsys, "--gpu", "H200", "--llama-7b", "--large", "model=Llama-3.1-8B", "max_batch_size=128")[1]
    assert table.count("engines/specs.toml, [large.tensorrt_llm]:\n") == 1
    assert 'model = "hf:OWNER/REPOSITORY"  # Llama-3.1-8B\nmax_batch_size = 128\n\n' in table


def test_the_llm_api_takes_its_sizes_from_its_config_alone(capsys):
    arguments = ("--gpu", "2xH200", "--small", "none", "--for", "llmapi", "--json", "--large", "tp_size=2")
    (model,) = json.loads(run(capsys, *arguments, "max_seq_len=16384")[1])["models"]
    assert model["specs_lines"] == ["max_seq_len = 16384"]


def test_a_plan_leaves_a_fifth_of_the_gpu_or_what_one_asks_for(capsys):
    def used(*more):
        report = json.loads(run(capsys, "--gpu", "L40S", *PAIR, "--json", *more)[1])
        return sum(sum(model["bytes"].values()) for model in report["models"]) / report["gpus"][0]["memory_bytes"]

    assert 0.79 < used() <= 0.8
    assert 0.89 < used("--head-room", "0.1") <= 0.9
    assert used("--reserve", "4") <= 0.8 - 4 / 44.3


@pytest.mark.parametrize(
    ("group", "gib"),
    [
        ("{ kind: KIND_CPU count: 2 }", 0.0),
        ("{ kind: KIND_GPU count: 2 gpus: [ 0 ] }", 1.0),
        ("{ kind: KIND_GPU }, { kind: KIND_CPU count: 4 }", 0.5),
    ],
)
def test_a_classifier_on_the_gpu_is_counted(tmp_path, capsys, group, gib):
    file = tmp_path / "text_classifier_onnx" / "config.pbtxt"
    file.parent.mkdir()
    file.write_text(f"# KIND_GPU moves it to a GPU\ninstance_group [ {group} ]\n")
    repository_with(tmp_path, "tensorrt_llm_large")
    report = json.loads(run(capsys, "--gpu", "L40S", *PAIR, "--json", repository=tmp_path)[1])
    assert report["reserved_bytes"] == gib * 2**30
    arguments = ("--gpu", "L40S", "--small", "none", "--check", "--reserve", "1")
    assert f"{gib + 1:.2f} GiB of others" in run(capsys, *arguments, repository=tmp_path)[1]


def test_the_lines_of_a_plan_pass_the_check_when_they_stand_in_the_configs(tmp_path, capsys):
    report = json.loads(run(capsys, "--gpu", "L40S", *PAIR, "--json")[1])
    for model in report["models"]:
        config = repository_with(tmp_path, model["model"], *model["lines"])
    status, table, _ = run(capsys, "--gpu", "L40S", *PAIR, "--check", repository=config)
    assert (status, table.splitlines()[-1]) == (0, "It fits.")
    assert run(capsys, "--gpu", "24", *PAIR, "--check", repository=config)[0] == 1


def repository_with(folder, model, *lines):
    """A model repository in `folder` with a model whose config.pbtxt has these lines more, others of its key gone."""
    target = folder / model
    shutil.copytree(MODEL_REPOSITORY / model, target, ignore=shutil.ignore_patterns("1", "configs"))
    text = (target / "config.pbtxt").read_text()
    text = re.sub(r"(?m)^parameters \{ key: \"(kv_cache_free|max_tokens_in).*\n", "", text)
    (target / "config.pbtxt").write_text("\n".join([text, *lines, ""]))
    return folder


def test_settings_that_depend_on_the_order_of_loading_do_not_pass_the_check(tmp_path, capsys):
    for model in ("tensorrt_llm_small", "tensorrt_llm_large"):
        repository_with(tmp_path, model)  # TensorRT-LLM's 0.9, without a cap
    status, table, _ = run(capsys, "--gpu", "L40S", *PAIR, "--check", repository=tmp_path)
    assert status == 1
    faults = table.split("tensorrt_llm_small then tensorrt_llm_large:")[1]
    assert "tensorrt_llm_large gets no tokens of KV cache, but needs 81,920" in faults
    assert "all at once: GPU 0 137% full" in table


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('parameters { key: "kv_cache_free_gpu_mem_fraction" value { string_value: "1.5" } }', "it must be above 0"),
        ('parameters { key: "kv_cache_free_gpu_mem_fraction" value { string_value: "x" } }', "it must be above 0"),
        (
            'parameters { key: "max_tokens_in_paged_kv_cache" value { string_value: "-1" } }',
            "it must be a whole number",
        ),
        ('parameters { key: "gpu_device_ids" value { string_value: "a" } }', "gpus is 'a'; give numbers"),
        ('parameters { key: "gpu_device_ids" value { string_value: "1" } }', "is to run on GPU 1; there are 1"),
    ],
)
def test_a_setting_that_is_none_is_named(tmp_path, capsys, line, message):
    repository_with(tmp_path, "tensorrt_llm_large", line)
    status, _, error = run(capsys, "--gpu", "L40S", "--small", "none", "--check", repository=tmp_path)
    assert status == 2
    assert message in error


def test_batches_that_the_engine_cannot_take_do_not_pass_the_check(capsys):
    arguments = ("--gpu", "H200", "--small", "none", "--large", "max_batch_size=32", "--check")
    message = "error: tensorrt_llm_large/config.pbtxt: max_batch_size is 64; the engine's is 32\n"
    assert run(capsys, *arguments) == (2, "", message)
    assert run(capsys, *arguments, "--for", "llmapi")[0] == 0


def test_what_does_not_fit_says_by_how_much_and_what_would(capsys):
    status, table, _ = run(
        capsys, "--gpu", "L40S", "--small", "none", "--large", "model=Llama-3.1-70B", "max_seq_len=4096"
    )
    assert status == 1
    numbers = re.search(r"needs ([\d.]+) GiB, has ([\d.]+) GiB available, and is short by ([\d.]+) GiB", table)
    needs, has, short = map(float, numbers.groups())
    assert needs - has == pytest.approx(short, abs=0.011)
    assert has == pytest.approx(0.8 * 44.3, abs=0.01)
    assert table.splitlines()[-1] == "  --gpu 8xL40S --large tp_size=8"


def test_a_change_that_is_proposed_can_be_typed(capsys):
    arguments = ("--gpu", "2xH100-80GB", "--small", "none", "--large", "model=Llama-3.1-70B", "max_seq_len=8192")
    status, table, _ = run(capsys, *arguments, "tp_size=2")
    assert status == 1
    way = next(line.split() for line in table.splitlines() if line.startswith("  --large quantisation=fp8"))
    assert run(capsys, *arguments, "tp_size=2", *way[1:])[0] == 0


@pytest.mark.parametrize(("gpu", "keys"), [("L40S", "quantisation=fp8"), ("L4", "concurrent=8")])
def test_the_llm_api_is_said_to_quantise_nothing_where_quantised_weights_are_planned(capsys, gpu, keys):
    arguments = ("--gpu", gpu, "--small", "none", "--large", keys)
    remark = "The LLM API does not quantise: name a model that was saved quantised"
    assert remark in run(capsys, *arguments, "--for", "llmapi")[1]
    assert remark not in run(capsys, *arguments)[1]
    assert remark not in run(capsys, "--gpu", "L40S", "--small", "none", "--for", "llmapi")[1]


def test_the_engine_of_large_is_loaded_once_more_for_each_instance_of_llama_7b(capsys):
    report = json.loads(run(capsys, "--gpu", "H200", *PAIR, "--llama-7b", "instances=2", "--json")[1])
    _, large, static = report["models"]
    assert static["source"] == large["source"] and static["bytes"]["weights"] == large["bytes"]["weights"]
    assert static["gpus"] == [[0], [0]]
    assert static["lines"][0] == "instance_group [ { count: 2 kind: KIND_CPU } ]"


def test_on_several_gpus_the_lines_say_which_are_whose(capsys):
    report = json.loads(
        run(capsys, "--gpu", "4x80", "--small", "none", *PAIR[3:], "tp_size=2", "instances=2", "--json")[1]
    )
    (model,) = report["models"]
    assert 'parameters { key: "gpu_device_ids" value { string_value: "0,1;2,3" } }' in model["lines"]


def test_the_llm_api_gets_lines_of_its_own_and_has_to_have_a_config(tmp_path, capsys):
    report = json.loads(run(capsys, "--gpu", "L40S", *PAIR, "--for", "llmapi", "--json")[1])
    assert all(model["file"].endswith("configs/llmapi.pbtxt") for model in report["models"])
    assert 'parameters { key: "max_num_tokens" value { string_value: "8192" } }' in report["models"][1]["lines"]
    repository_with(tmp_path, "tensorrt_llm_large")
    arguments = ("--gpu", "L40S", "--small", "none", "--for", "llmapi", "--check")
    assert (
        run(capsys, *arguments, repository=tmp_path)[2]
        == "error: --large: tensorrt_llm_large has no configs/llmapi.pbtxt\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "L41"], "GPU 'L41' isn't known; near: L4"),
        (["--gpu", ""], "GPU '' isn't known"),
        (["--gpu", "0.5"], "GPU '0.5' isn't known"),
        (["--gpu", "80", "--large", "tp_sise=2"], "--large: 'tp_sise=2' must be KEY=VALUE; keys: model, max_seq_len"),
        (["--gpu", "80", "--large", "tp_size=0"], "--large: tp_size is '0'; it must be a whole number above 0"),
        (
            ["--gpu", "80", "--large", "tp_size=2"],
            "--large: tp_size x pp_size is 2; there are 1 GPUs: give --gpu 2xNAME",
        ),
        (["--gpu", "80", "--large", "quantisation=fp4"], "--large: quantisation is 'fp4'; known: none, fp8"),
        (["--gpu", "80", "--large", "model=Qwen2.5-9B"], "model 'Qwen2.5-9B' isn't known by name; near: qwen2.5-7b"),
        (["--gpu", "80", "--llama-7b", "tp_size=2"], "--llama-7b: 'tp_size=2' must be KEY=VALUE; keys: input, output"),
        (["--gpu", "80", "--small", "none", "--large", "none"], "all models are left out"),
        (["--gpu", "80", "--specs", "/nowhere.toml"], "nowhere.toml: "),
        (["--gpu", "A100-80GB", "--large", "quantisation=fp8"], "tensorrt_llm_large is in fp8, which A100-80GB can't"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, message):
    status, table, error = run(capsys, *arguments)
    assert (status, table) == (2, "")
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("says", ["", "exit 9", "echo", "echo '[N/A], [N/A], [N/A]'"])
def test_without_a_gpu_here_and_without_a_name_it_asks_for_one(capsys, monkeypatch, tmp_path, says):
    if says:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, error = run(capsys)
    assert status == 2
    assert error.startswith("error: nvidia-smi shows no GPU here: name one with --gpu, such as A10, L4")


def test_this_machines_gpus_are_those_of_nvidia_smi(capsys, monkeypatch, tmp_path):
    stand_in = tmp_path / "nvidia-smi"
    stand_in.write_text("#!/bin/sh\necho 'NVIDIA L40S, 46068, 8.9'\necho 'NVIDIA A40, 46068, 8.6'\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [(gpu.name, gpu.memory, gpu.capability) for gpu in plan._gpus(None)] == [
        ("NVIDIA L40S", 46068 * 2**20, (8, 9)),
        ("NVIDIA A40", 46068 * 2**20, (8, 6)),
    ]


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("hf:Qwen/Qwen2.5-7B-Instruct", "16 bits"),
        ("hf:Qwen/Qwen2.5-7B-Instruct-AWQ", "int4_awq"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "int4_gptq"),
        ("qwen2.5-7b-fp8", "fp8"),
    ],
)
def test_a_name_of_the_hub_says_how_the_model_was_saved(capsys, name, weights):
    arguments = ("--gpu", "48", "--small", "none", "--large", f"model={name}")
    (model,) = json.loads(run(capsys, *arguments, "--json")[1])["models"]
    assert (model["weights"], model["parameters"]) == (weights, 7_615_616_512)
    if weights != "16 bits":
        error = run(capsys, *arguments, "quantisation=fp8")[2]
        assert error == f"error: --large: quantisation is fp8; the model was saved in {weights} already\n"


def test_a_reader_that_leaves_early_is_no_error():
    plan_command = f"{shlex.quote(sys.executable)} -m scripts.plan --gpu H200 | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", plan_command], cwd=MODEL_REPOSITORY.parent, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


def test_a_model_in_a_folder_is_read_from_its_config(capsys, tmp_path):
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 32000}
    config |= {"intermediate_size": 2048, "num_attention_heads": 16, "torch_dtype": "bfloat16"}
    config |= {"quantization_config": {"quant_method": "awq", "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = ("--gpu", "24", "--small", "none", "--large", f"model={tmp_path}", "max_seq_len=2048", "--json")
    (model,) = json.loads(run(capsys, *arguments)[1])["models"]
    assert model["weights"] == "int4_awq"
    assert model["parameters"] == 2 * 32000 * 1024 + 4 * (4 * 1024**2 + 3 * 1024 * 2048 + 2 * 1024) + 1024
    (tmp_path / "config.json").write_text("[")
    assert run(capsys, *arguments)[0] == 2


SHIPPED = [("tensorrt_llm", "L40S", ()), ("llmapi", "L40S", ())]
SHIPPED += [("tensorrt_llm", "H100-NVL", ("--llama-7b",)), ("llmapi", "H100-80GB", ("--llama-7b",))]


@pytest.mark.parametrize(("runtime", "gpu", "more"), SHIPPED)
def test_the_shipped_settings_fit_the_shipped_specs_in_every_order_of_loading(capsys, runtime, gpu, more):
    status, table, _ = run(capsys, "--gpu", gpu, "--for", runtime, "--check", *more)
    assert "doesn't fit" not in table
    assert status == 0


def test_by_the_llm_api_the_sizes_in_the_config_count(tmp_path, capsys):
    shutil.copytree(MODEL_REPOSITORY / "tensorrt_llm_large", tmp_path / "tensorrt_llm_large")
    config = tmp_path / "tensorrt_llm_large" / "configs" / "llmapi.pbtxt"
    arguments = ("--gpu", "L40S", "--small", "none", "--for", "llmapi", "--check", "--json")

    def used(**values):
        text = config.read_text()
        for key, value in values.items():
            text, found = re.subn(rf'(key: "{key}" value {{ string_value: ")[^"]*', rf"\g<1>{value}", text)
            assert found == 1
        config.write_text(text)
        return json.loads(run(capsys, *arguments, repository=tmp_path)[1])["loads"][0]["used_bytes"][0]

    assert used() < used(max_num_tokens=16384) < used(max_batch_size=512)
    config.write_text(config.read_text().replace('"512"', '"many"'))
    assert "max_batch_size is 'many'" in run(capsys, *arguments, repository=tmp_path)[2]


@pytest.mark.parametrize("gpu", ["T4", "v100-32gb"])
def test_a_card_that_tensorrt_llm_left_behind_is_refused_with_its_reason(capsys, gpu):
    assert plan.main(["--gpu", gpu]) == 2
    assert "there is no TensorRT-LLM 1.x for it, which needs 8.0 (Ampere) or newer" in capsys.readouterr().err
