"""engines/tensorrt_llm/spec.py: a tier's sub-table for GPUs, through engines/specs.py that reads it."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.paths import MODEL_REPOSITORY
from engines import specs
from engines.specs import BadSpec
from engines.tensorrt_llm.spec import GpuSpec

PLAIN = '[small]\nsource = "a==1"\n[large]\nsource = "b==2"\n'


def load(tmp_path, *lines):
    file = tmp_path / "specs.toml"
    file.write_text(PLAIN + "[small.tensorrt_llm]\n" + "\n".join(lines) + "\n")
    return specs.load(file)["small"].tensorrt_llm


def test_the_sub_table_is_optional(tmp_path):
    file = tmp_path / "specs.toml"
    file.write_text(PLAIN)
    assert [spec.tensorrt_llm for spec in specs.load(file).values()] == [None, None]


def test_a_model_and_its_context_are_enough(tmp_path):
    spec = load(tmp_path, 'model = "hf:owner/repo"', "max_seq_len = 100")
    assert spec == GpuSpec("hf:owner/repo", 100)
    assert (spec.longest_input, spec.world_size, spec.quantisation) == (99, 1, "none")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tp_sise = 2", "has 'tp_sise'; known: model, max_seq_len, precision, quantisation"),
        ("tp_size = 0", "tp_size is 0; it must be a whole number above 0"),
        ("pp_size = true", "pp_size is True; it must be a whole number above 0"),
        ("workers = 1.5", "workers is 1.5; it must be a whole number above 0"),
        ('quantisation = "fp4"', "quantisation is 'fp4'; known: none, fp8, int8_weight_only"),
        ('precision = "float32"', "precision is 'float32'; known: auto, float16, bfloat16"),
        ('calib_dataset = ""', "calib_dataset is ''; it must be a string"),
        ("max_input_len = 100", r"max_input_len is 100; it must be below max_seq_len \(100\)"),
        ("max_num_tokens = 63", r"max_num_tokens is 63; it must be at least max_batch_size \(64\)"),
        ('kv_cache_dtype = "fp8"', 'kv_cache_dtype "fp8" needs quantisation "fp8"; it is "none"'),
        (
            'kv_cache_dtype = "int8"',
            r"kv_cache_dtype is 'int8'; known: auto, fp8 \(it excludes KV reuse .*: take fp8, with",
        ),
        ("kv_cache_dtype = 8", r"kv_cache_dtype is 8; known: auto, fp8$"),
        (
            'quantisation = "int4_gptq"',
            r"quantisation is 'int4_gptq'; known: .* \(.* no GPTQ weights: .* or take int4_awq\)",
        ),
        ('quantisation = "smoothquant"', r"quantisation is 'smoothquant'; known: .* \(it is int8_sq here\)"),
    ],
)
def test_a_wrong_key_or_value_is_refused_in_one_line_that_names_it(tmp_path, line, message):
    with pytest.raises(BadSpec, match=rf"specs.toml: \[small.tensorrt_llm\] {message}") as refused:
        load(tmp_path, 'model = "hf:owner/repo"', "max_seq_len = 100", line)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("line", "missing"), [('model = "m"', "max_seq_len"), ("max_seq_len = 9", "model")])
def test_a_key_without_a_default_has_to_be_there(tmp_path, line, missing):
    with pytest.raises(BadSpec, match=rf"\[small.tensorrt_llm\] {missing} is missing"):
        load(tmp_path, line)


def test_one_token_is_no_context(tmp_path):
    with pytest.raises(BadSpec, match="max_seq_len is 1; a prompt and an answer need at least 2 tokens"):
        load(tmp_path, 'model = "m"', "max_seq_len = 1")


def test_what_is_not_a_table_is_refused(tmp_path):
    file = tmp_path / "specs.toml"
    file.write_text(PLAIN.replace('source = "a==1"', 'source = "a==1"\ntensorrt_llm = 1'))
    with pytest.raises(BadSpec, match=r"\[small.tensorrt_llm\] must be a table"):
        specs.load(file)


@pytest.mark.parametrize(
    ("tier", "model"),
    [("small", "tensorrt_llm_small"), ("large", "tensorrt_llm_large"), ("large", "llama_7b_tensorrt_llm")],
)
def test_the_shipped_engines_take_the_batches_that_triton_is_told_of(tier, model):
    config = text_format.Parse((MODEL_REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    assert specs.load()[tier].tensorrt_llm.max_batch_size >= config.max_batch_size
