import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.words.normalise import (
    FOLDINGS,
    INVISIBLE,
    LETTER,
    MARK,
    SEPARATOR,
    SOFT,
    VOICED,
    Folding,
    Normal,
    Normaliser,
    spellings,
)

EVERYTHING = Normaliser(Folding())
NOTHING = Normaliser(Folding(**dict.fromkeys(FOLDINGS, False)))


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("\uff26\uff41Lun", "falun"),
        ("\u24d5\u24e4\U0001f152\U0001d4f4", "fuck"),
        ("f\u00fcck", "fu\u0308ck"),
        ("\u0441la\u0455\u0455", "class"),
        ("\u03a1\u039f\u03a1", "pop"),
        ("\u81fa\u7063", "\u53f0\u6e7e"),
        ("\ufb01x", "fix"),
        ("Stra\u00dfe", "strasse"),
        ("\u1d00\u0299\u1d04", "abc"),
        ("\u0661\u0662\u0663", "123"),
        ("\u2460\u2777", "12"),
        ("a\u200bb\u0301\u00adc", "ab\u0301c"),
        ("c++", "c++"),
        ("foo - bar", "foo bar"),
        (" foo ", "foo"),
        ("\u6cd5 \u8f6e-\u529f", "\u6cd5\u8f6e\u529f"),
        ("...", ""),
    ],
)
def test_a_word_becomes_its_symbols(text, symbols):
    assert EVERYTHING.word(text) == symbols


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        (" ", SEPARATOR), ("\n", SEPARATOR), ("_", SEPARATOR), ("\u3002", SEPARATOR), ("\u2026", SEPARATOR),
        ("\u200b", INVISIBLE), ("\u202e", INVISIBLE), ("\u00ad", INVISIBLE), ("\u0301", MARK), ("\0", INVISIBLE),
        ("+", SOFT), ("@", SOFT), ("\u2605", SOFT), ("\U0001f600", SOFT),
        ("a", LETTER), ("\u6cd5", LETTER), ("\u0e31", LETTER), ("7", LETTER),
    ],
)  # fmt: skip
def test_the_kind_of_a_character(character, kind):
    assert EVERYTHING.of(character).kind == kind


@given(st.characters())
def test_what_a_character_becomes_stays_as_it_is(character):
    for symbol in EVERYTHING.of(character).symbols:
        assert EVERYTHING.of(symbol).symbols == symbol


@given(st.characters(categories=["L", "N"], max_codepoint=0x24FF))
def test_case_and_composition_never_matter(character):
    symbols = EVERYTHING.word(character)
    assert EVERYTHING.word(unicodedata.normalize("NFD", character)) == symbols
    assert spellings(character.lower(), EVERYTHING) & spellings(character, EVERYTHING) or not symbols


@given(st.text(st.characters().filter(lambda each: EVERYTHING.of(each).kind not in (MARK, VOICED)), max_size=8))
def test_the_symbols_of_a_text_without_marks_are_those_of_its_characters(text):
    separate = "".join(EVERYTHING.of(character).symbols for character in text)
    assert EVERYTHING.word(text).replace(" ", "") == separate


@pytest.mark.parametrize("mark", ["\u0300", "\u0301", "\u0327"])
def test_a_mark_counts_only_behind_a_letter(mark):
    assert EVERYTHING.of(mark).kind == MARK
    assert EVERYTHING.word(mark) == ""
    assert EVERYTHING.word(f"x{mark}") == f"x{mark}"


def test_with_every_folding_off_letters_stand_for_themselves():
    assert NOTHING.word("A\uff41\u00e1\u0430\u81fa") == "A\uff41\u00e1\u0430\u81fa"
    assert NOTHING.of("\u200b") == Normal(LETTER, "\u200b")


def test_a_word_whose_cases_look_different_has_several_spellings():
    assert spellings("\u0397\u03bd\u03b1", EVERYTHING) >= {EVERYTHING.word("\u0397\u039d\u0391")}


def test_no_plain_ascii_letter_or_digit_is_taken_for_another():
    for character in "abcdefghijklmnopqrstuvwxyz0123456789":
        assert EVERYTHING.of(character) == Normal(LETTER, character)


def test_changed_names_every_character_that_is_not_itself():
    assert {"A", "\uff41", "\u200b", " ", "+", "\u81fa"} <= EVERYTHING.changed
    assert not EVERYTHING.changed & {"a", "\u6cd5", "\u5b57"}
