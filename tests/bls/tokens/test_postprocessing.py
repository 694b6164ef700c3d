import numpy as np
import pytest

from bls.errors import BadRequest
from bls.tokens.postprocessing import Postprocessor
from bls.tokens.tier_tokenizers import TierTokenizer
from tests import small_tokenizers

LARGE = small_tokenizers.byte_level()
SMALL = small_tokenizers.llama_like()
OUTPUT = frozenset({"OUTPUT"})


@pytest.fixture
def tiers(tmp_path):
    manifest = small_tokenizers.write_manifest(tmp_path, "huggingface", "tokenizer.json")
    return {"small": TierTokenizer(manifest, SMALL), "large": TierTokenizer(manifest, LARGE)}


def tensors(rows, lengths=None, **given):
    """Inputs for `rows` of beams of ids, padded with 0."""
    width = max(len(ids) for beams in rows for ids in beams)
    ids = [[[*beam, *[0] * (width - len(beam))] for beam in beams] for beams in rows]
    sizes = lengths or [[len(beam) for beam in beams] for beams in rows]
    return {"TOKENS_BATCH": np.array(ids, np.int32), "SEQUENCE_LENGTH": np.array(sizes, np.int32), **given}


def texts(postprocessor, rows, **given):
    """Sorted into rows again: OUTPUT has one text after the other, as NVIDIA's has."""
    output = postprocessor.answer(tensors(rows, **given), OUTPUT)["OUTPUT"]
    assert output.shape == (sum(map(len, rows)),)
    found = iter(output)
    return [[next(found).decode() for _ in beams] for beams in rows]


def test_each_beam_of_each_row_has_its_text(tiers):
    written = [["The fox", "the lazy dog 🦖"], ["你好", ""]]
    rows = [[LARGE.encode(text, False) for text in beams] for beams in written]
    assert texts(Postprocessor(tiers), rows) == written


def test_ids_after_the_sequences_end_are_padding(tiers):
    ids = LARGE.encode("The fox", False)
    assert texts(Postprocessor(tiers), [[[*ids, *ids]]], lengths=[[len(ids)]]) == [["The fox"]]
    assert texts(Postprocessor(tiers), [[ids]], lengths=[[0]]) == [[""]]


@pytest.mark.parametrize(("default", "asked", "shown"), [
    (True, None, False), (False, None, True), (True, False, True), (False, True, False),
])  # fmt: skip
def test_special_tokens_are_skipped_unless_the_request_or_the_setting_says_otherwise(tiers, default, asked, shown):
    ids = [*LARGE.encode("fox", False), LARGE.eos_id]
    given = {} if asked is None else {"SKIP_SPECIAL_TOKENS": np.array([[asked]])}
    expected = "fox<|end|>" if shown else "fox"
    assert texts(Postprocessor(tiers, skip_special_tokens=default), [[ids]], **given) == [[expected]]


def test_each_row_may_have_a_tier_of_its_own(tiers):
    rows = [[SMALL.encode("the dog", False)], [LARGE.encode("the fox", False)]]
    tier = np.array([[b"small"], [b"large"]], np.object_)
    assert texts(Postprocessor(tiers), rows, TIER=tier) == [["the dog"], ["the fox"]]


def test_broken_utf8_and_ids_beyond_the_vocabulary_are_no_error(tiers):
    half = LARGE.encode("🦖", False)[:-1]
    (text,) = texts(Postprocessor(tiers), [[[*half, -1, 10**6]]])[0]
    assert set(text) == {"\ufffd"}


@pytest.mark.parametrize("length", [-1, 4])
def test_a_length_that_does_not_fit_is_refused(tiers, length):
    with pytest.raises(BadRequest, match=f"SEQUENCE_LENGTH is {length}; TOKENS_BATCH holds 3 ids"):
        Postprocessor(tiers).answer(tensors([[[1, 2, 3]]], lengths=[[length]]), OUTPUT)


def test_lengths_for_other_beams_than_there_are_are_refused(tiers):
    with pytest.raises(BadRequest, match=r"TOKENS_BATCH is \[1, 1, 3\], SEQUENCE_LENGTH is \[1, 2\]"):
        Postprocessor(tiers).answer(tensors([[[1, 2, 3]]], lengths=[[1, 2]]), OUTPUT)


def test_an_unknown_tier_is_refused_by_its_name(tiers):
    given = tensors([[[1]]], TIER=np.array([[b"huge"]], np.object_))
    with pytest.raises(BadRequest, match="TIER is 'huge'; it must be one of small, large"):
        Postprocessor(tiers).answer(given, OUTPUT)


def test_nothing_is_made_that_was_not_asked_for(tiers):
    assert Postprocessor(tiers).answer(tensors([[[1]]]), frozenset()) == {}


def test_a_rows_text_ends_before_its_first_stop_word(tiers):
    rows = [[LARGE.encode("The quick fox", False)], [LARGE.encode("The lazy dog", False)]]
    words = np.array([[b"fox", b"qui"], [b"", b"cat"]], np.object_)
    assert texts(Postprocessor(tiers), rows, STOP_WORDS_DICT=words) == [["The "], ["The lazy dog"]]
