import json

import numpy as np
import pytest

from bls.contract import PREPROCESSING_CONTRACT
from bls.errors import BadRequest
from bls.manifest import BadManifest
from bls.tokens import byte_table
from bls.tokens.huggingface import FastTokenizer
from bls.tokens.preprocessing import Preprocessor, ensure_tables, lengths, padded, word_lists
from bls.tokens.tier_tokenizers import TierTokenizer, load_tiers
from bls.tokens.tokenizer import Settings
from tests import small_tokenizers
from tests.fakes import engine_folders

TEMPLATE = "{% for m in messages %}<|begin|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
LARGE = FastTokenizer(small_tokenizers.byte_level().core, Settings("<|begin|>", "<|end|>", True, TEMPLATE))
SMALL = small_tokenizers.sentencepiece_like_llama()
EVERY_OUTPUT = PREPROCESSING_CONTRACT.output_names


@pytest.fixture
def tiers(tmp_path):
    write = small_tokenizers.write_manifest
    small = write(tmp_path / "small", "sentencepiece", "tokenizer.model", end_ids=(2,), vocab_size=800)
    large = write(tmp_path / "large", "huggingface", "tokenizer.json", end_ids=(0, 7, 9), vocab_size=700)
    return {"small": TierTokenizer(small, SMALL), "large": TierTokenizer(large, LARGE)}


@pytest.fixture
def preprocessor(tiers):
    return Preprocessor(tiers)


def strings(*rows):
    """A string tensor [rows, n]; each row is one text or a list of them."""
    listed = [row if isinstance(row, list) else [row] for row in rows]
    encoded = [[text if isinstance(text, bytes) else text.encode() for text in row] for row in listed]
    return np.array(encoded, np.object_).reshape(len(rows), -1)


def inputs(rows=1, **given):
    return {"REQUEST_OUTPUT_LEN": np.full((rows, 1), 16, np.int32), **given}


def answer(preprocessor, *names, rows=1, **given):
    outputs = preprocessor.answer(inputs(rows, **given), frozenset(names) if names else EVERY_OUTPUT)
    return outputs[names[0]] if len(names) == 1 else outputs


def test_a_prompts_ids_are_those_of_the_large_engine_unless_the_tier_says_small(preprocessor):
    query = {"QUERY": strings("The quick fox")}
    assert answer(preprocessor, "INPUT_ID", **query).tolist() == [LARGE.encode("The quick fox", True)]
    small = answer(preprocessor, "INPUT_ID", TIER=strings("small"), **query)
    assert small.tolist() == [SMALL.encode("The quick fox", True)]


def test_every_output_has_the_contracts_type_and_rank(preprocessor):
    outputs = answer(
        preprocessor,
        rows=2,
        QUERY=strings("one", "two and more"),
        STOP_WORDS_DICT=strings(["END"], ["\n\n"]),
        PROMPT_TABLE_EXTRA_ID=np.array([[5], [6]], np.uint64),
    )
    kinds = {"TYPE_INT32": np.int32, "TYPE_UINT64": np.uint64, "TYPE_FP32": np.float32}
    for tensor in PREPROCESSING_CONTRACT.outputs:
        array = outputs[tensor.name]
        assert array.dtype == kinds[tensor.datatype], tensor.name
        assert array.ndim == 1 + len(tensor.dims), tensor.name
        assert array.shape[0] == 2, tensor.name
        for size, declared in zip(array.shape[1:], tensor.dims, strict=True):
            assert declared in (-1, size), tensor.name


def test_only_the_outputs_that_are_asked_for_are_made(preprocessor):
    # Without a prompt INPUT_ID can't be made, and nobody asks for it.
    assert set(answer(preprocessor, "OUT_END_ID", "OUT_PAD_ID")) == {"OUT_END_ID", "OUT_PAD_ID"}


def test_rows_of_different_lengths_are_padded_and_their_lengths_told(preprocessor):
    texts = ["fox", "The quick brown fox jumps"]
    outputs = answer(preprocessor, rows=2, QUERY=strings(*texts), PAD_ID=np.array([[77], [78]], np.int32))
    ids, sizes = outputs["INPUT_ID"], outputs["REQUEST_INPUT_LEN"]
    for row, text in enumerate(texts):
        expected = LARGE.encode(text, True)
        assert ids[row, : sizes[row, 0]].tolist() == expected
    assert set(ids[0, sizes[0, 0] :].tolist()) == {77}


def test_messages_go_through_the_chat_template(preprocessor):
    messages = [{"role": "system", "content": "terse"}, {"role": "user", "content": "hi"}]
    ids = answer(preprocessor, "INPUT_ID", MESSAGES=strings(json.dumps(messages)))
    assert LARGE.decode(ids[0].tolist(), False) == "<|begin|>system: terse<|end|><|begin|>user: hi<|end|>"


@pytest.mark.parametrize("applies", [True, False])
def test_a_query_may_be_wrapped_as_one_user_message(preprocessor, applies):
    ids = answer(preprocessor, "INPUT_ID", QUERY=strings("hi"), APPLY_CHAT_TEMPLATE=np.array([[applies]]))
    expected = "<|begin|>user: hi<|end|>" if applies else "<|begin|>hi"
    assert LARGE.decode(ids[0].tolist(), False) == expected


@pytest.mark.parametrize(("adds", "expected"), [(True, "<|begin|>hi"), (False, "hi")])
def test_the_bos_of_a_plain_prompt_is_a_setting(tiers, adds, expected):
    ids = answer(Preprocessor(tiers, add_special_tokens=adds), "INPUT_ID", QUERY=strings("hi"))
    assert LARGE.decode(ids[0].tolist(), False) == expected


def test_ids_to_end_and_to_pad_with_are_the_engines_unless_given(preprocessor):
    outputs = answer(preprocessor, "OUT_END_ID", "OUT_PAD_ID", QUERY=strings("hi"))
    assert (outputs["OUT_END_ID"].tolist(), outputs["OUT_PAD_ID"].tolist()) == ([[0]], [[0]])
    given = {"END_ID": np.array([[5]], np.int32), "PAD_ID": np.array([[6]], np.int32)}
    outputs = answer(preprocessor, "OUT_END_ID", "OUT_PAD_ID", QUERY=strings("hi"), **given)
    assert (outputs["OUT_END_ID"].tolist(), outputs["OUT_PAD_ID"].tolist()) == ([[5]], [[6]])


def test_an_engines_further_end_ids_stop_it_as_words_of_one_id(preprocessor):
    stop = answer(preprocessor, "STOP_WORDS_IDS", QUERY=strings("hi"))
    assert stop.tolist() == [[[7, 9], [1, 2]]]
    fox = LARGE.encode_word("fox")[0]
    stop = answer(preprocessor, "STOP_WORDS_IDS", QUERY=strings("hi"), STOP_WORDS_DICT=strings(["fox"]))
    ends = [len(fox), len(fox) + 1, len(fox) + 2]
    assert stop.tolist() == [[[*fox, 7, 9], ends + [-1] * (len(fox) + 2 - 3)]]


def test_a_client_that_chose_the_end_id_gets_no_others(preprocessor):
    given = {"QUERY": strings("hi"), "END_ID": np.array([[5]], np.int32)}
    assert answer(preprocessor, "STOP_WORDS_IDS", **given).shape == (1, 2, 0)


def test_words_that_are_absent_are_an_empty_list(preprocessor):
    assert answer(preprocessor, "BAD_WORDS_IDS", QUERY=strings("hi")).shape == (1, 2, 0)
    empty = {"QUERY": strings("hi"), "BAD_WORDS_DICT": strings(["", ""])}
    assert answer(preprocessor, "BAD_WORDS_IDS", **empty).shape == (1, 2, 0)


def test_bad_words_hold_both_spellings_where_a_tokenizer_puts_a_space_before_a_text(preprocessor):
    given = {"QUERY": strings("hi"), "BAD_WORDS_DICT": strings(["fox"]), "TIER": strings("small")}
    ids, ends = answer(preprocessor, "BAD_WORDS_IDS", **given)[0].tolist()
    first, second = ids[: ends[0]], ids[ends[0] : ends[1]]
    assert {"".join(SMALL.core.id_to_piece(word)) for word in (first, second)} == {"fox", "▁fox"}


def test_word_lists_are_flat_ids_and_ends():
    assert word_lists([[[5, 6], [9]]]).tolist() == [[[5, 6, 9], [2, 3, -1]]]
    assert word_lists([[[5]], []]).tolist() == [[[5], [1]], [[0], [-1]]]
    assert word_lists([[], []]).shape == (2, 2, 0)


def test_padding_of_no_ids_at_all_is_an_empty_row():
    pad = np.array([[7], [7]], np.int32)
    assert padded([[], []], pad).shape == (2, 0)
    assert padded([[1, 2], []], pad).tolist() == [[1, 2], [7, 7]]
    assert lengths([[1, 2], []]).tolist() == [[2], [0]]


def test_a_bias_is_added_to_each_id_of_a_word(preprocessor):
    weights = np.array([[2.5, -1.0]], np.float32)
    given = {"QUERY": strings("hi"), "EMBEDDING_BIAS_WORDS": strings(["fox", "dog"]), "EMBEDDING_BIAS_WEIGHTS": weights}
    bias = answer(preprocessor, "EMBEDDING_BIAS", **given)
    expected = np.zeros((1, 700), np.float32)
    for word, weight in (("fox", 2.5), ("dog", -1.0)):
        for token in LARGE.encode(word, False):
            expected[0, token] += weight
    assert bias.tolist() == expected.tolist()
    assert answer(preprocessor, "EMBEDDING_BIAS", QUERY=strings("hi")).shape == (1, 0)


def test_without_a_decoder_prompt_there_is_one_pad_id(preprocessor):
    outputs = answer(preprocessor, QUERY=strings("hi"), PAD_ID=np.array([[6]], np.int32))
    assert outputs["DECODER_INPUT_ID"].tolist() == [[6]]
    assert outputs["REQUEST_DECODER_INPUT_LEN"].tolist() == [[1]]
    outputs = answer(preprocessor, QUERY=strings("hi"), DECODER_QUERY=strings("the dog"))
    assert outputs["DECODER_INPUT_ID"].tolist() == [LARGE.encode("the dog", True)]


def test_the_extra_id_of_a_prompt_table_stands_where_ids_are_beyond_the_vocabulary(tiers):
    manifest = small_tokenizers.write_manifest(tiers["large"].manifest.folder, "huggingface", "x", (0,), vocab_size=300)
    preprocessor = Preprocessor({"large": TierTokenizer(manifest, LARGE)})
    given = {"QUERY": strings("The quick"), "PROMPT_TABLE_EXTRA_ID": np.array([[9]], np.uint64)}
    extra = answer(preprocessor, "OUT_PROMPT_TABLE_EXTRA_IDS", **given)
    assert extra.tolist() == [[9 if token >= 300 else 0 for token in LARGE.encode("The quick", True)]]
    assert {0, 9} == set(extra[0].tolist())
    assert "OUT_PROMPT_TABLE_EXTRA_IDS" not in answer(preprocessor, QUERY=strings("hi"))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "give either QUERY or MESSAGES"),
        ({"QUERY": strings("hi"), "MESSAGES": strings("[]")}, "give either QUERY or MESSAGES"),
        ({"QUERY": strings(b"hi\xff")}, r"QUERY is not valid UTF-8 \(byte 2\)"),
        ({"QUERY": strings("hi"), "STOP_WORDS_DICT": strings([b"\xc3"])}, "STOP_WORDS_DICT is not valid UTF-8"),
        ({"QUERY": strings("hi"), "TIER": strings("huge")}, "TIER is 'huge'; it must be one of small, large"),
        ({"MESSAGES": strings("[{}]")}, r"messages\[0\]\.role is missing"),
        ({"MESSAGES": strings('[{"role": "user", "content": "a"}]'), "TIER": strings("small")}, "no chat template"),
        ({"QUERY": strings("a" * (32 * 512 + 1))}, "QUERY has 16385 characters; at most 16384 are taken"),
        ({"QUERY": strings("hi"), "EMBEDDING_BIAS_WORDS": strings(["a", "b"])}, "2 EMBEDDING_BIAS_WORDS have 0"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong_with_it(preprocessor, given, complaint):
    with pytest.raises(BadRequest, match=complaint) as caught:
        answer(preprocessor, **given)
    assert "\n" not in str(caught.value)


def test_rows_of_one_request_have_one_tier(preprocessor):
    with pytest.raises(BadRequest, match="TIER must be the same"):
        answer(preprocessor, rows=2, QUERY=strings("a", "b"), TIER=strings("small", "large"))


def test_a_tokenizer_that_both_tiers_share_is_loaded_once(tmp_path):
    for tier in ("small", "large"):
        folder = tmp_path / "engines" / "built" / tier
        small_tokenizers.write_manifest(folder, "sentencepiece", "tokenizer.model")
        (folder / "tokenizer.model").write_bytes(small_tokenizers.sentencepiece_model())
    tiers = load_tiers(engine_folders(tmp_path / "model_repository"))
    assert tiers["small"].tokenizer is not tiers["large"].tokenizer  # Their digests differ in these manifests.
    text = (tmp_path / "engines/built/large/engine.json").read_text()
    (tmp_path / "engines/built/small/engine.json").write_text(text)
    tiers = load_tiers(tmp_path / "model_repository")
    assert tiers["small"].tokenizer is tiers["large"].tokenizer


def test_an_engine_that_is_not_built_is_named_with_what_to_run(tmp_path):
    with pytest.raises(BadManifest, match=r"engine\.json is missing: run `python -m scripts\.build_engines small`"):
        load_tiers(engine_folders(tmp_path / "model_repository"))


def test_a_repository_without_an_engine_says_how_their_folders_are_named(tmp_path):
    (tmp_path / "model_repository").mkdir()
    with pytest.raises(BadManifest, match="has no engine: their folders are named tensorrt_llm_<tier>"):
        load_tiers(tmp_path / "model_repository")


def test_loading_builds_the_byte_table_of_each_tier(tiers):
    ensure_tables(tiers)
    for tier in tiers.values():
        table = byte_table.open_table(tier.manifest.token_bytes_path, tier.manifest.tokenizer.sha256)
        assert table.is_supported


def test_an_answer_may_get_as_long_as_the_setting_says_unless_the_request_does(tiers):
    preprocessor = Preprocessor(tiers, default_output_len=77)
    query = {"QUERY": strings("hi", "fox")}
    wanted = frozenset({"REQUEST_OUTPUT_LEN"})
    assert preprocessor.answer(query, wanted)["REQUEST_OUTPUT_LEN"].tolist() == [[77], [77]]
    assert preprocessor.answer(inputs(2, **query), wanted)["REQUEST_OUTPUT_LEN"].tolist() == [[16], [16]]
