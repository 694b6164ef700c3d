"""engines/tensorrt_llm/flags.py: the table of flags refuses what TensorRT-LLM 1.1 and 1.2 refuse."""

import pytest

from engines.tensorrt_llm import flags
from engines.tensorrt_llm.flags import BUILD, CONVERT, QUANTIZE, BadCommand

QWEN = CONVERT["qwen"]


def test_the_programs_of_a_build_are_in_the_table_and_each_names_its_source():
    assert set(flags.programs()) == {BUILD, *CONVERT.values(), QUANTIZE}
    for program in flags.programs().values():
        for source in program.source:
            path, commit = source.split()
            assert path.endswith(".py")
            assert len(commit) == 40


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (BUILD, ["--kv_cache_type", "paged", "--workers", "2", "--strip_plan"]),
        (BUILD, ["--max_decoder_seq_len", "100", "--lora_dir", "a", "b"]),
        (QWEN, ["--model_dir", "m", "-sq", "0.5", "--use_weight_only", "--weight_only_precision"]),
        (CONVERT["llama"], ["--meta_ckpt_dir", "m", "--use_fp8_rowwise", "--ffn_dim_multiplier", "1.5"]),
        (QUANTIZE, ["--model_dir", "m", "--qformat", "int4_awq", "--awq_block_size", "128"]),
    ],
)
def test_what_the_programs_take_is_taken(program, arguments):
    flags.programs()[program].check(arguments)


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (BUILD, ["--max_output_len", "5"], "trtllm-build: unrecognized arguments: --max_output_len 5"),
        (BUILD, ["--use_inflight_batching"], "unrecognized arguments: --use_inflight_batching"),
        (BUILD, ["--max_batch", "5"], "unrecognized arguments: --max_batch 5"),
        (BUILD, ["--kv_cache_type", "linear"], "argument --kv_cache_type: invalid choice: 'linear'"),
        (BUILD, ["--gpt_attention_plugin", "enable"], "argument --gpt_attention_plugin: invalid choice: 'enable'"),
        (BUILD, ["--remove_input_padding"], "argument --remove_input_padding: expected one argument"),
        (BUILD, ["--workers", "two"], "argument --workers: invalid int value: 'two'"),
        (BUILD, ["--tp_size", "2"], "unrecognized arguments: --tp_size 2"),
        (QWEN, ["--output_dir", "c"], "convert_checkpoint.py: the following arguments are required: --model_dir"),
        (QWEN, ["--model_dir", "m", "--use_fp8"], "unrecognized arguments: --use_fp8"),
        (QUANTIZE, ["--qformat", "int4"], "quantize.py: argument --qformat: invalid choice: 'int4'"),
    ],
)
def test_an_unknown_flag_or_value_is_named(program, arguments, message):
    with pytest.raises(BadCommand) as refused:
        flags.programs()[program].check(arguments)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
