"""engines/tensorrt_llm/commands.py: every command that a spec can ask for is one that TensorRT-LLM takes."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from engines import specs
from engines.tensorrt_llm import commands, flags
from engines.tensorrt_llm.spec import PRECISIONS, QUANTISATIONS, BadGpuSpec, GpuSpec

SPECS = [
    GpuSpec(
        "hf:owner/model",
        4096,
        precision,
        quantisation,
        kv_cache,
        tp_size=tp_size,
        pp_size=pp_size,
    )
    for precision, quantisation, kv_cache, (tp_size, pp_size) in product(
        PRECISIONS, QUANTISATIONS, ("auto", "fp8"), [(1, 1), (2, 1), (1, 2), (4, 2)]
    )
    if kv_cache == "auto" or quantisation == "fp8"
]


def both(spec, family="llama"):
    checkpoint = commands.of_checkpoint(spec, family, Path("a model"), Path("checkpoint"), commands.EXAMPLES)
    return checkpoint, commands.of_engine(spec, Path("checkpoint"), Path("engine"), Path("timing.cache"))


def values(command):
    """The flags with their values: True for a switch."""
    found, words = {}, list(command.arguments)
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = True if following.startswith("--") else following
    return found


@pytest.mark.parametrize("family", sorted(flags.CONVERT))
def test_the_table_of_flags_allows_every_command_of_every_spec(family):
    for spec in SPECS:
        for command in both(spec, family):
            command.check()


# In a process of its own, outside of this folder: the tests have a stand-in of the same name.
REAL_PARSER = """
import json, sys
try:
    from tensorrt_llm.commands.build import parse_arguments
except Exception as error:
    sys.exit(print("absent", error))
for arguments in json.load(sys.stdin):
    parse_arguments().parse_args(arguments)
print("taken")
"""


def test_the_real_trtllm_build_takes_every_command(tmp_path):
    given = json.dumps([both(spec)[1].arguments for spec in SPECS])
    python = [sys.executable, "-c", REAL_PARSER]
    ran = subprocess.run(python, input=given, capture_output=True, text=True, cwd=tmp_path, check=False)
    if "absent" in ran.stdout:
        pytest.skip(f"TensorRT-LLM is not installed here: {ran.stdout.strip()}")
    assert ran.stdout.rstrip().endswith("taken"), ran.stderr


@pytest.mark.parametrize("spec", [tier.tensorrt_llm for tier in specs.load().values()], ids=specs.load().keys())
def test_the_shipped_tiers_have_commands(spec):
    for command in both(spec, "qwen"):
        command.check()


def test_an_engine_is_built_for_in_flight_batching_and_kv_reuse():
    flag = values(both(GpuSpec("m", 4096, max_batch_size=8, max_num_tokens=512, max_input_len=4000))[1])
    assert {name: flag[name] for name in flag if flag[name] in ("enable", "paged")} == {
        "--kv_cache_type": "paged",
        "--remove_input_padding": "enable",
        "--context_fmha": "enable",
        "--use_paged_context_fmha": "enable",
    }
    sizes = ("--max_batch_size", "--max_input_len", "--max_seq_len", "--max_num_tokens", "--max_beam_width")
    assert [flag[name] for name in sizes] == ["8", "4000", "4096", "512", "1"]


@pytest.mark.parametrize(
    ("quantisation", "program", "expected"),
    [
        ("none", flags.CONVERT["llama"], {}),
        ("int8_weight_only", flags.CONVERT["llama"], {"--use_weight_only": True, "--weight_only_precision": "int8"}),
        ("int4_weight_only", flags.CONVERT["llama"], {"--use_weight_only": True, "--weight_only_precision": "int4"}),
        ("fp8", flags.QUANTIZE, {"--qformat": "fp8", "--calib_dataset": "cnn_dailymail", "--calib_size": "512"}),
        ("int4_awq", flags.QUANTIZE, {"--qformat": "int4_awq", "--awq_block_size": "128"}),
        ("w4a8_awq", flags.QUANTIZE, {"--qformat": "w4a8_awq", "--awq_block_size": "128"}),
        ("int8_sq", flags.QUANTIZE, {"--qformat": "int8_sq"}),
        ("nvfp4", flags.QUANTIZE, {"--qformat": "nvfp4"}),
    ],
)
def test_a_quantisation_is_made_by_the_program_that_can(quantisation, program, expected):
    checkpoint = both(GpuSpec("m", 4096, quantisation=quantisation))[0]
    assert checkpoint.program == program
    assert expected.items() <= values(checkpoint).items()


def test_every_quantisation_differs_from_the_others():
    assert len({both(GpuSpec("m", 4096, quantisation=name))[0].words for name in QUANTISATIONS}) == len(QUANTISATIONS)


def test_the_checkpoint_is_cut_for_the_gpus_and_all_ranks_are_built_at_once():
    checkpoint, engine = both(GpuSpec("m", 4096, tp_size=4, pp_size=2))
    assert (values(checkpoint)["--tp_size"], values(checkpoint)["--pp_size"]) == ("4", "2")
    assert values(engine)["--workers"] == "8"
    assert values(both(GpuSpec("m", 4096, tp_size=4, workers=1))[1])["--workers"] == "1"


def test_an_fp8_cache_is_calibrated_and_read_in_fp8():
    checkpoint, engine = both(GpuSpec("m", 4096, quantisation="fp8", kv_cache_dtype="fp8"))
    assert values(checkpoint)["--kv_cache_dtype"] == "fp8"
    assert values(engine)["--use_fp8_context_fmha"] == "enable"


def test_a_command_can_be_pasted_into_a_shell():
    for command in both(SPECS[-1]):
        printed = subprocess.run(
            ["sh", "-c", f"printf '%s\\0' {command.text()}"], capture_output=True, check=True
        ).stdout
        assert tuple(printed.decode().split("\0")[:-1]) == command.words
    assert "'a model'" in both(SPECS[-1])[0].text()


def test_the_scripts_are_those_of_nvidias_image():
    assert both(SPECS[0], "qwen")[0].start == ("python3", "/app/examples/models/core/qwen/convert_checkpoint.py")


def test_the_output_matrix_is_quantised_where_that_is_asked_for_and_possible():
    asked = both(GpuSpec("m", 4096, quantisation="fp8", quantise_lm_head=True))[0]
    asked.check()
    assert "--quantize_lm_head" in asked.words
    with pytest.raises(BadGpuSpec, match="quantise_lm_head needs quantisation fp8, nvfp4"):
        GpuSpec("m", 4096, quantise_lm_head=True)
    with pytest.raises(BadGpuSpec, match="quantise_lm_head is 1; it must be true or false"):
        GpuSpec("m", 4096, quantise_lm_head=1)
