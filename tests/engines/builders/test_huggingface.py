"""huggingface.py, and what is made of a Hugging Face folder's tokenizer, without torch and transformers."""

import json
import subprocess
import sys

import pytest

from bls.tokens import tokenizer_files
from engines.builders import huggingface
from engines.builders.huggingface import Model
from engines.builders.model_files import describe_huggingface
from engines.builders.sources import BadSource
from engines.tensorrt_llm import tokenizer_info
from tests import huggingface_models, small_tokenizers


def described(tmp_path, **how):
    huggingface_models.write(tmp_path / "tokenizer", **how)
    return describe_huggingface(tmp_path, "tokenizer", name="x", builder="y", weights="z")


def test_a_folder_and_a_hub_address_are_models(tmp_path):
    folder = huggingface_models.write(tmp_path / "Tiny-Chat")
    assert Model.parse(str(folder)) == Model(str(folder))
    assert Model.parse("hf:Qwen/Qwen2.5-7B-Instruct").repository == "Qwen/Qwen2.5-7B-Instruct"
    assert [Model.parse(text).name for text in (str(folder), "hf:a/B-1")] == ["Tiny-Chat", "B-1"]


@pytest.mark.parametrize("text", ["no/folder", "hf:repo", "hf:a/b/c.gguf", "package==1.0", "."])
def test_what_is_neither_is_refused_with_both_forms(text):
    with pytest.raises(BadSource, match=r"is neither hf:owner/repo nor a folder with config\.json"):
        Model.parse(text)


def test_only_what_a_build_needs_is_taken():
    names = ["README.md", ".gitattributes", "config.json", "model-1.safetensors", "model.safetensors.index.json"]
    names += [
        "tokenizer.json",
        "pytorch_model.bin",
        "original/consolidated.pth",
        "chat_template.jinja",
        "modeling_x.py",
    ]
    assert huggingface.wanted("a/b", names) == [
        "chat_template.jinja",
        "config.json",
        "model.safetensors.index.json",
        "modeling_x.py",
        "tokenizer.json",
        "model-1.safetensors",
    ]
    assert huggingface.wanted("a/b", ["pytorch_model-1-of-1.bin"]) == ["pytorch_model-1-of-1.bin"]
    with pytest.raises(BadSource, match=r"a/b has no weights: \*.safetensors or pytorch_model\*.bin"):
        huggingface.wanted("a/b", ["config.json"])


@pytest.mark.parametrize(("text", "message"), [("{", "config.json: "), ("[]", "config.json must hold an object")])
def test_a_damaged_config_is_named(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadSource, match=message):
        Model.parse(str(tmp_path)).config(print)


# End ids.


def test_all_end_ids_of_generation_config_count_and_the_first_is_the_engines(tmp_path):
    manifest = described(tmp_path, eos_token_id=[7, 8], pad_token_id=3)
    assert (manifest.end_ids, manifest.pad_id) == ((7, 8, 0), 3)


def test_the_end_of_a_turn_that_only_the_tokenizer_knows_is_an_end_too(tmp_path):
    manifest = described(tmp_path)  # config.json has 7, the end of a base model's text; the tokenizer has <|end|>, 0
    assert (manifest.end_ids, manifest.pad_id) == ((7, 0), 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_position_embeddings": None}, "int"),
        ({"vocab_size": 5}, "end_ids must be one or more ids below 5"),
    ],
)
def test_a_config_that_lacks_something_is_refused_in_one_line(tmp_path, changes, message):
    with pytest.raises(BadSource, match=message) as refused:
        described(tmp_path, config=huggingface_models.QWEN | changes)
    assert "\n" not in str(refused.value)


def test_a_config_without_end_ids_leaves_those_of_the_tokenizer(tmp_path):
    assert described(tmp_path, config=huggingface_models.QWEN | {"eos_token_id": None}).end_ids == (0,)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(BadSource, match=r"the model has no tokenizer: one of tokenizer\.json, tokenizer\.model"):
        described(tmp_path, tokenizer="")


# Tokenizers.


@pytest.mark.parametrize(("kind", "file"), [("byte_level", "tokenizer.json"), ("sentencepiece", "tokenizer.model")])
def test_both_kinds_of_tokenizer_are_read_with_their_template(tmp_path, kind, file):
    manifest = described(tmp_path, tokenizer=kind)
    assert manifest.tokenizer.path == f"tokenizer/{file}"
    loaded = tokenizer_files.load(manifest)
    assert loaded.chat_template == huggingface_models.TEMPLATE
    ids = loaded.encode("The quick brown fox", add_special_tokens=False)
    assert loaded.decode(ids).strip() == "The quick brown fox"


def test_torch_and_transformers_are_not_needed(tmp_path):
    huggingface_models.write(tmp_path / "tokenizer")
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None);"
        "from pathlib import Path; from bls.tokens import tokenizer_files;"
        "from engines.builders.model_files import describe_huggingface;"
        "from engines.tensorrt_llm.tokenizer_info import info;"
        f"made = describe_huggingface(Path({str(tmp_path)!r}), 'tokenizer', name='x', builder='y', weights='z');"
        "print(len(info(tokenizer_files.load(made), [1])['encoded_vocab']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == small_tokenizers.byte_level().vocab_size


# xgrammar_tokenizer_info.json. xgrammar reads of tokenizer_str the decoder's type and whether a space is put before.


def types(parts):
    return [part["type"] for part in parts]


def test_guided_decoding_gets_each_id_in_its_place():
    source = small_tokenizers.byte_level()
    info = tokenizer_info.info(source, (0, 7))
    assert info["stop_token_ids"] == [0, 7]
    assert len(info["encoded_vocab"]) == source.vocab_size
    for token in (0, 1, 300, source.vocab_size - 1):
        assert info["encoded_vocab"][token] == source.core.id_to_token(token)
    assert json.loads(info["tokenizer_str"])["decoder"]["type"] == "ByteLevel"


@pytest.mark.parametrize(
    ("kind", "normalizers"),
    [
        ("sentencepiece_like_llama", ["Prepend", "Replace"]),
        ("sentencepiece_that_strips", ["Prepend", "Replace"]),
        ("sentencepiece_without_prefix", ["Replace"]),
    ],
)
def test_a_sentencepiece_model_is_described_as_hugging_face_would(kind, normalizers):
    source = small_tokenizers.ALL[kind]()
    info = tokenizer_info.info(source, (2,))
    likeness = json.loads(info["tokenizer_str"])
    assert types(likeness["normalizer"]["normalizers"]) == normalizers
    assert "ByteFallback" in types(likeness["decoder"]["decoders"])
    assert info["encoded_vocab"][source.token_id("</s>")] == "</s>"
