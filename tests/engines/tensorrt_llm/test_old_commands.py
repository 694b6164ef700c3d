"""engines/tensorrt_llm/old_commands.py: commands of older articles, flag by flag, and what does the same today."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.tensorrt_llm import flags, old_flags
from engines.tensorrt_llm.flags import BadCommand
from engines.tensorrt_llm.old_commands import explain
from scripts import build_engines

# The kind of command that this project's readers bring: a flag of build.py, two that are gone, one of no program.
ARTICLE = """trtllm-build --checkpoint_dir ./tllm_checkpoint_2gpu --output_dir ./engines/llama-7b \\
  --gemm_plugin float16 --use_inflight_batching --paged_kv_cache --remove_input_padding \\
  --max_batch_size 64 --max_input_len 2048 --max_output_len 512 --world_size 2"""


def only(text):
    (explanation,) = explain(text)
    return explanation


def fate(text, flag):
    return next(fate for fate in only(text).fates if fate.flag.split()[0] == f"--{flag}")


def today(text):
    """Today's flags with their values, by program."""
    found = {}
    for command in only(text).commands:
        parsed = vars(flags.programs()[command.program].parser().parse_args(command.arguments))
        found[command.name] = {name: value for name, value in parsed.items() if value not in (None, False)}
    return found


def test_the_articles_command_has_a_successor_that_batches_in_flight():
    assert not only(ARTICLE).has_wrong
    assert today(ARTICLE) == {
        "convert_checkpoint.py": {"model_dir": "MODEL_DIR", "output_dir": "./tllm_checkpoint_2gpu", "tp_size": 2},
        "trtllm-build": {
            "checkpoint_dir": "./tllm_checkpoint_2gpu",
            "output_dir": "./engines/llama-7b",
            "gemm_plugin": "float16",
            "kv_cache_type": "paged",
            "remove_input_padding": "enable",
            "max_batch_size": 64,
            "max_input_len": 2048,
            "max_seq_len": 2560,
        },
    }


@pytest.mark.parametrize(
    ("flag", "gone", "words"),
    [
        ("use_inflight_batching", "0.8", "gpt_model_type in config.pbtxt"),
        ("paged_kv_cache", "deprecated", "--kv_cache_type paged"),
        ("max_output_len", "0.12", "--max_seq_len 2560"),
        ("world_size", "0.9", "--tp_size 2 of convert_checkpoint.py"),
        ("remove_input_padding", "changed by 0.10", "--remove_input_padding enable"),
        ("max_batch_size", "", "as before"),
    ],
)
def test_each_flag_of_the_article_is_explained_with_its_version(flag, gone, words):
    explained = fate(ARTICLE, flag)
    assert explained.gone == gone
    assert words in explained.text


def test_the_build_script_of_a_model_becomes_a_conversion_and_a_build():
    text = """python examples/llama/build.py --model_dir ./llama/7B --dtype float16 --use_gpt_attention_plugin float16
        --use_gemm_plugin --enable_context_fmha --use_weight_only --weight_only_precision int4 --world_size 4
        --tp_size 2 --pp_size 2 --parallel_build --max_output_len 100 --output_dir ./out""".replace("\n", " ")
    assert not only(text).has_wrong
    assert today(text) == {
        "convert_checkpoint.py": {
            "model_dir": "./llama/7B",
            "dtype": "float16",
            "tp_size": 2,
            "pp_size": 2,
            "use_weight_only": True,
            "weight_only_precision": "int4",
            "output_dir": "tllm_checkpoint",
        },
        "trtllm-build": {
            "checkpoint_dir": "tllm_checkpoint",
            "output_dir": "./out",
            "gpt_attention_plugin": "float16",
            "gemm_plugin": "auto",
            "context_fmha": "enable",
            "workers": 4,
            "max_seq_len": 1124,  # build.py's and trtllm-build's max_input_len is 1024 unless it is given
        },
    }


def test_fp8_of_a_build_script_is_made_by_quantize():
    text = "python build.py --model_dir m --enable_fp8 --fp8_kv_cache --quantized_fp8_model_path q.npz --tp_size 2"
    assert today(text)["quantize.py"] == {
        "model_dir": "m",
        "qformat": "fp8",
        "kv_cache_dtype": "fp8",
        "tp_size": 2,
        "output_dir": "tllm_checkpoint",
    }
    assert "convert_checkpoint.py" not in today(text)


def test_the_fp8_flags_that_an_article_gives_the_build_are_the_checkpoints(capsys):
    text = "trtllm-build --checkpoint_dir c --fp8_mode hybrid --strongly_typed --quantize_lm_head"
    assert today(text)["quantize.py"].items() >= {"qformat": "fp8", "quantize_lm_head": True, "output_dir": "c"}.items()
    assert build_engines.main(["--explain", text]) == 0
    assert "--fp8_mode hybrid\n      never there; now --qformat fp8 of quantize.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "docker run --gpus all nvcr.io/x:24.01-py3 tritonserver --model-repository=/models --cuda-graph",
        "python3 scripts/launch_triton_server.py --world_size 8 --max_input_length 2048",
    ],
)
def test_a_line_that_starts_a_server_is_sent_to_what_knows_its_flags(text):
    with pytest.raises(BadCommand, match="scripts/serve takes the flags of such a line"):
        explain(text)


def test_a_flag_of_the_conversion_that_quantize_lacks_is_not_lost_in_silence():
    text = "python build.py --model_dir m --enable_fp8 --use_parallel_embedding"
    assert fate(text, "use_parallel_embedding").is_wrong
    assert fate(text, "use_parallel_embedding").text == "here quantize.py converts, and it has no such flag"


@pytest.mark.parametrize(
    ("text", "program", "expected"),
    [
        ("python convert_checkpoint.py --model_dir m --use_embedding_sharing", "convert_checkpoint.py", {}),
        ("python convert_checkpoint.py --ammo_quant_ckpt_path q", "convert_checkpoint.py", {"quant_ckpt_path": "q"}),
        ("python quantize.py --export_path e --max_seq_length 9", "quantize.py", {"tokenizer_max_seq_length": 9}),
        ("trtllm-build --paged_kv_cache disable", "trtllm-build", {"kv_cache_type": "continuous"}),
        ("trtllm-build --output_dir=o --workers=2", "trtllm-build", {"output_dir": "o", "workers": 2}),
        ("trtllm-build --timing_cache c", "trtllm-build", {"input_timing_cache": "c", "output_timing_cache": "c"}),
    ],
)
def test_flags_of_other_programs_are_followed_too(text, program, expected):
    assert not only(text).has_wrong
    assert expected.items() <= today(text)[program].items()


def test_the_script_of_qwen_has_flags_of_its_own():
    command = only("python examples/qwen/convert_checkpoint.py --hf_model_dir m --ammo_quant_ckpt_path q").commands[0]
    assert command.words == ("python3", "/app/examples/models/core/qwen/convert_checkpoint.py", "--model_dir", "m")


@pytest.mark.parametrize(
    ("text", "flag", "words"),
    [
        ("trtllm-build --frobnicate 3", "frobnicate", "not a flag of any version that is known here"),
        ("trtllm-build --max_batchsize 8", "max_batchsize", "did you mean --max_batch_size?"),
        ("trtllm-build --gpt_attention_plugin enable", "gpt_attention_plugin", "invalid choice: 'enable'"),
        ("trtllm-build --max_batch_size", "max_batch_size", "expected one argument"),
        ("trtllm-build --qformat fp8", "qformat", "a flag of quantize.py, not of this program"),
    ],
)
def test_what_was_never_a_flag_is_named_and_left_out(text, flag, words):
    explained = fate(text, flag)
    assert explained.is_wrong
    assert words in explained.text
    assert only(text).commands[-1].words == ("trtllm-build",)


def test_several_commands_of_a_script_are_explained_one_by_one():
    script = (
        f"cd TensorRT-LLM && pip install x\npython convert_checkpoint.py --model_dir m --tp_size 2\n{ARTICLE} # build"
    )
    assert [explanation.program for explanation in explain(script)] == ["convert_checkpoint.py", "trtllm-build"]


@pytest.mark.parametrize(
    "text",
    [
        "trtllm-build --checkpoint_dir 'a b' \\\n --workers 2",
        "trtllm-build --checkpoint_dir 'a b' \\ \t\r\n --workers 2",
        "$ trtllm-build \u2014checkpoint_dir \u2018a b\u2019 \u2013workers=2",
        "trtllm-build \u2013\u2013checkpoint_dir \u201ca b\u201d -\u2013workers 2",
        "trtllm-build --checkpoint_dir 'a b' --workers 2 2>&1 | tee build.log",
        "trtllm-build --checkpoint_dir 'a b' --workers 2 > build.log &",
        "CUDA_VISIBLE_DEVICES=0 mpirun -n 1 python3 -m tensorrt_llm.commands.build --checkpoint_dir 'a b' --workers 2",
    ],
)
def test_a_command_is_read_as_pages_and_shells_write_it(text):
    assert not only(text).has_wrong
    assert today(text) == {"trtllm-build": {"checkpoint_dir": "a b", "workers": 2}}


@pytest.mark.parametrize(
    ("text", "family", "is_guess"),
    [
        ("python convert_checkpoint.py --model_dir Qwen2.5-7B", "qwen", False),
        ("python examples/llama/build.py --model_dir m", "llama", False),
        ("python convert_checkpoint.py --model_dir Mixtral-8x7B", "llama", False),
        ("python build.py --model_dir m", "llama", True),
    ],
)
def test_the_family_is_told_by_a_name_or_is_said_to_be_a_guess(text, family, is_guess, capsys):
    assert only(text).commands[0].program == flags.CONVERT[family]
    assert only(text).family_is_guess is is_guess
    build_engines.main(["--explain", text])
    assert ("# This uses llama's script" in capsys.readouterr().out) is is_guess


def test_a_command_may_follow_explain_without_quotes(capsys):
    assert build_engines.main(["--explain", "trtllm-build", "--output_dir", "a b", "--workers", "2"]) == 0
    assert "  --output_dir 'a b' \\\n  --workers 2" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "ls -l", "trtllm-serve model", "trtllm-build 'unclosed", "trtllm-build stray"])
def test_what_cannot_be_explained_is_refused_in_one_line(text):
    with pytest.raises(BadCommand) as refused:
        explain(text)
    assert "\n" not in str(refused.value)


OLD = sorted(set(old_flags.known()) | {name for program in flags.programs().values() for name in program.flags})
VALUES = st.lists(st.sampled_from(["2", "0.5", "float16", "enable", "disable", "int8", "fp8", "a folder"]), max_size=2)
GIVEN = st.lists(st.tuples(st.sampled_from(OLD), VALUES), max_size=8, unique_by=lambda given: given[0])
PROGRAMS = st.sampled_from(["trtllm-build", "python build.py", "qwen/convert_checkpoint.py", "x/quantize.py"])


@settings(deadline=None)
@given(PROGRAMS, GIVEN)
def test_every_flag_gets_an_answer_and_todays_commands_are_ones_that_the_programs_take(program, given_flags):
    text = " ".join([program, *(f"--{name} {' '.join(map(repr, values))}" for name, values in given_flags)])
    explanation = only(text)
    assert [fate.flag.split()[0] for fate in explanation.fates] == [f"--{name}" for name, _ in given_flags]
    for command in explanation.commands:
        command.check()
    kept = {word for command in explanation.commands for word in command.arguments}
    for fate_of in explanation.fates:
        assert fate_of.text
        if fate_of.text == "as before":
            assert fate_of.flag.split()[0] in kept


def test_the_successors_in_the_file_are_flags_of_today():
    keys = {"build": [flags.BUILD], "convert": list(flags.CONVERT.values()), "quantize": [flags.QUANTIZE]}
    for name, old in old_flags.known().items():
        assert old.why
        for successor in old.becomes:
            assert successor.to in old_flags.TARGETS
            assert successor.rule in old_flags.RULES
            assert any(successor.flag in flags.programs()[key].flags for key in keys[successor.to]), name


# The command.


def test_the_command_prints_what_became_of_each_flag_and_todays_commands(capsys):
    assert build_engines.main(["--explain", ARTICLE]) == 0
    printed = capsys.readouterr().out
    assert "--max_output_len 512\n      gone since 0.12; now --max_seq_len 2560" in printed
    assert "trtllm-build \\\n  --checkpoint_dir ./tllm_checkpoint_2gpu \\\n" in printed
    assert "# MODEL_DIR: the folder of the Hugging Face model" in printed


def test_an_unknown_flag_fails_the_command(capsys):
    assert build_engines.main(["--explain", "trtllm-build --frobnicate 1"]) == 1
    assert "--frobnicate 1\n      left out: not a flag of any version" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["small", "--explain", "trtllm-build"]])
def test_either_a_tier_or_a_command_is_named(arguments, capsys):
    with pytest.raises(SystemExit):
        build_engines.main(arguments)
    assert "name an engine (small, large, classifier), or give a command to --explain" in capsys.readouterr().err
