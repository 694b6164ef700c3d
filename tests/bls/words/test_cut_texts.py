"""The filter at the end of a text that was cut off, by its length or by time."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.words.compiler import compile_lists
from bls.words.lists import Category, Word, WordLists
from bls.words.stream_filter import WordFilter
from bls.words.table import WordTable

CATEGORIES = {
    "rude": Category("rude", repeats=False),
    "ends": Category("ends", "terminate", repeats=False),
    "told": Category("told", "monitor"),
}
DENY = {"rude": ["idiot", "idiotic", "abba", "b a"], "ends": ["bomb"], "told": ["watched"]}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    words = {name: [Word(text, Path("w"), 1) for text in texts] for name, texts in DENY.items()}
    target = tmp_path_factory.mktemp("words") / "compiled.bin"
    compile_lists(WordLists(words, [], CATEGORIES), target)
    return WordTable(target)


def shown(table, pieces, is_cut=True):
    stream = WordFilter(table)
    return "".join([*map(stream.push, pieces), stream.finish(is_cut=is_cut)])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("you id", "you "),
        ("you idio", "you "),
        ("you idiot", "you *****"),
        ("you idioti", "you "),
        ("you bom", "you "),
        ("we watc", "we watc"),  # It would only be counted.
        ("a dozen", "a dozen"),
        ("", ""),
    ],
)
def test_the_head_of_a_word_that_would_be_hidden_is_not_shown(table, text, wanted):
    assert shown(table, [text]) == shown(table, text) == wanted


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abom ", max_size=14))
def test_no_more_is_taken_away_than_the_head_of_a_word(table, text):
    cut, whole = shown(table, text), shown(table, text, is_cut=False)
    assert whole.startswith(cut)
    taken = " ".join(whole[len(cut) :].split())
    hidden = [word for name in ("rude", "ends") for word in DENY[name]]
    assert any(word.startswith(taken) for word in hidden), (whole, cut)
