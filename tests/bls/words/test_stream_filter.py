import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.paths import ROOT
from bls.words.compiler import compile_lists
from bls.words.lists import Category
from bls.words.normalise import Folding, normaliser
from bls.words.stream_filter import WordFilter, filter_text
from bls.words.table import WordTable
from tests.word_streams import MAX_GAP, cut, lists_of, oracle_matches, oracle_text, pushed, thorough

# Latin, Chinese, a traditional one, several letters in one, wide, circled, accented, Cyrillic, separators, invisible.
ALPHABET = "ab\u0430A\uff41\u24d1\u00e1f\ufb00\u6cd5\u8f6e\u8f2a1 -+\u200b\u0301"
PLAIN = "abf\u6cd5\u8f6e1 +"


@pytest.fixture
def table_of(tmp_path):
    def compiled(deny, allow=(), categories=None, **more) -> WordTable:
        categories = categories or {name: Category(name) for name in deny}
        compile_lists(lists_of(deny, list(allow), categories, **more), tmp_path / "compiled")
        return WordTable(tmp_path / "compiled")

    return compiled


@st.composite
def settings_of_lists(draw, actions=("mask",)):
    def words(least):
        usable = st.text(PLAIN, min_size=1, max_size=4).filter(lambda text: normaliser(Folding()).word(text))
        return draw(st.lists(usable, min_size=least, max_size=4, unique=True))

    deny, categories = {}, {}
    separators, repeats = draw(st.booleans()), draw(st.booleans())
    for name in ("first", "second"):
        deny[name] = words(1)
        action = draw(st.sampled_from(actions))
        categories[name] = Category(
            name, action, f"<{name}>" if action != "mask" else "", draw(st.booleans()), separators, repeats
        )
    return deny, words(0), categories


texts = st.lists(st.text(ALPHABET, max_size=14), min_size=4, max_size=8)
cuts = st.lists(st.integers(0, 100), max_size=6)


@thorough
@given(settings_of_lists(("mask", "replace", "monitor")), texts, cuts)
def test_what_comes_out_is_what_the_oracle_says_however_the_text_is_cut(table_of, lists, samples, where):
    table = table_of(*lists)
    for text in samples:
        expected = oracle_text(text, *lists)
        hits = {(name, start, end) for name, spans in oracle_matches(text, *lists).items() for start, end in spans}
        for pieces in (cut(text, where), list(text), [text]):
            outs, stream = pushed(table, pieces)
            assert "".join(outs) == expected
            assert [(hit.category, hit.start, hit.end) for hit in stream.hits] == sorted(
                hits, key=lambda hit: (hit[1], hit[2], hit[0])
            )


@thorough
@given(settings_of_lists(("mask", "replace")), texts)
def test_nothing_is_ever_out_that_the_whole_text_would_hide(table_of, lists, samples):
    table = table_of(*lists)
    for text in samples:
        expected = oracle_text(text, *lists)
        out = ""
        stream = WordFilter(table)
        for character in text:
            out += stream.push(character)
            assert expected.startswith(out)
        assert out + stream.finish() == expected


@thorough
@given(settings_of_lists(("mask", "terminate")), texts, cuts)
def test_a_terminating_word_ends_the_stream_at_the_same_place_however_the_text_is_cut(table_of, lists, samples, where):
    table = table_of(*lists)
    _, _, categories = lists
    ending = [name for name, category in categories.items() if category.action == "terminate"]
    for text in samples:
        found = oracle_matches(text, *lists)
        outs, stream = pushed(table, list(text))
        out = "".join(outs)
        for pieces in (cut(text, where), [text]):
            others, other = pushed(table, pieces)
            assert "".join(others) == out
            assert (other.hits, other.terminated) == (stream.hits, stream.terminated)
        assert stream.terminated == any(found[name] for name in ending)
        if stream.terminated:
            last_words = {categories[name].text for name in ending}
            clean = next(out.removesuffix(text) for text in last_words if out.endswith(text))
            hidden = {at for spans in found.values() for start, end in spans for at in range(start, end)}
            first = min(start for name in ending for start, _ in found[name])
            shown = "".join("*" if at in hidden else character for at, character in enumerate(text))
            # The clean text goes up to the word, or less where something else was still undecided.
            assert shown.startswith(clean)
            assert len(clean) <= min([hit.start for hit in stream.hits if hit.action == "terminate"], default=first)


@thorough
@given(
    st.lists(st.text("ab\u6cd5", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
    st.lists(st.text("ab\u6cd5", min_size=1, max_size=4), max_size=2, unique=True),
    st.booleans(),
    st.text("ab\u6cd5 ", max_size=7),
)
def test_every_held_character_could_still_become_part_of_a_match(table_of, words, allow, whole_words, text):
    categories = {"first": Category("first", whole_words=whole_words, repeats=False)}
    lists = {"first": words}, allow, categories
    table = table_of(*lists)
    continuations = ["".join(symbols) for size in range(4) for symbols in itertools.product("ab\u6cd5 ", repeat=size)]
    stream = WordFilter(table)
    out = ""
    for at, character in enumerate(text, 1):
        out += stream.push(character)
        if stream.held:
            # Held in order, so what is true of the first held one is why all of them are held.
            first = len(out)
            assert any(
                any(start <= first < end and end > at for start, end in oracle_matches(text[:at] + more, lists[0], [],
                                                                                      categories)["first"])
                or oracle_text(text[:at] + more, *lists)[first] != oracle_text(text[:at], *lists)[first]
                for more in continuations
            )  # fmt: skip


def test_masks_one_character_for_each_raw_one(table_of):
    table = table_of({"a": ["法轮功"]}, max_gap=16)
    assert filter_text(table, "说法\u200b輪-功。")[0] == "说*****。"


def test_text_that_cannot_match_is_not_held(table_of):
    stream = WordFilter(table_of({"a": ["bad word"]}))
    assert stream.push("A good text, and a b") == "A good text, and a "
    assert stream.held == 1
    assert stream.push("it.") == "bit."


def test_an_ascii_word_waits_for_one_character_to_know_its_boundary(table_of):
    stream = WordFilter(table_of({"a": ["ass"]}))
    assert [stream.push(character) for character in "ass "] == ["", "", "", "*** "]


def test_a_word_may_be_open_to_either_side(table_of):
    table = table_of({"a": ["hack*", "*porn*"]})
    assert filter_text(table, "hackers shack a1porn1")[0] == "****ers shack a1****1"


def test_a_replacement_waits_until_no_longer_word_can_begin_in_it(table_of):
    categories = {"a": Category("a", "replace", "[-]", whole_words=False)}
    stream = WordFilter(table_of({"a": ["abc", "cde"]}, (), categories))
    assert [stream.push(character) for character in "abcd"] == ["", "", "", ""]
    assert stream.push("x") + stream.push("e") == "[-]dxe"


def test_a_mask_goes_out_at_once_though_a_longer_word_goes_on(table_of):
    stream = WordFilter(table_of({"a": ["法轮", "法轮功"]}))
    assert [stream.push(character) for character in "法轮功"] == ["", "**", "*"]


def test_what_is_invisible_behind_a_word_is_hidden_with_its_repeated_letter(table_of):
    stream = WordFilter(table_of({"a": ["*ab*"]}))
    assert [stream.push(character) for character in "ab\u200bbb"] == ["", "**", "", "", "***"]


@pytest.mark.parametrize("action", ["mask", "replace"])
@pytest.mark.parametrize("words", [["aa"], ["aab"], ["aa", "b"], ["a", "aab"]])
def test_every_short_text_of_two_letters_is_right_around_the_longest_run(table_of, words, action):
    categories = {"x": Category("x", action, "<x>" if action == "replace" else "", whole_words=False)}
    lists = {"x": words}, ["ba"], categories
    table = table_of(*lists)
    for size in range(MAX_GAP + 3):
        for text in map("".join, itertools.product("ab", repeat=size)):
            assert "".join(pushed(table, list(text))[0]) == oracle_text(text, *lists)


def test_an_allow_word_frees_the_short_word_inside_it_only(table_of):
    table = table_of({"a": ["妈的"]}, ["妈的小手"])
    assert filter_text(table, "妈的小手 妈的大手")[0] == "妈的小手 **大手"


def test_a_monitored_word_passes_without_delay_and_is_counted(table_of):
    stream = WordFilter(table_of({"a": ["法轮"]}, (), {"a": Category("a", "monitor")}))
    assert [stream.push(character) for character in "法轮"] == ["法", "轮"]
    assert stream.counts == {"a": 1}


def test_after_a_terminating_word_everything_is_swallowed(table_of):
    stream = WordFilter(table_of({"a": ["法轮"]}, (), {"a": Category("a", "terminate", "That's all.")}))
    assert stream.push("好法轮好") == "好That's all."
    assert stream.terminated
    assert stream.push("more") + stream.finish() == ""


def test_streams_over_one_table_do_not_know_of_each_other(table_of):
    table = table_of({"a": ["法轮"]})
    first, second = WordFilter(table), WordFilter(table)
    assert first.push("法") + second.push("轮") == "轮"
    assert first.push("轮") == "**"


@pytest.mark.parametrize("option", ["case", "width", "marks", "invisible", "look_alikes", "traditional"])
def test_each_folding_can_be_switched_off_for_a_category(table_of, option):
    disguised = {"case": "DRUG", "width": "\uff44rug", "marks": "dru\u0301g", "invisible": "d\u200brug",
                 "look_alikes": "\u0501rug", "traditional": "\u8f2a\u5b50"}[option]  # fmt: skip
    deny = {"strict": ["drug", "轮子"]}
    on = table_of(deny)
    assert filter_text(on, disguised)[1]
    off = table_of(deny, (), {"strict": Category("strict", folding=Folding(**{option: False}))})
    assert not filter_text(off, disguised)[1]
    assert filter_text(off, "drug 轮子")[0] == "**** **"


def test_categories_that_match_in_different_ways_work_side_by_side(table_of):
    categories = {"exact": Category("exact", folding=Folding(case=False)), "loose": Category("loose")}
    table = table_of({"exact": ["SB"], "loose": ["drug"]}, (), categories)
    assert len(table.lexicons) == 2
    assert filter_text(table, "SB sb DRUG")[0] == "** sb ****"


def test_what_is_held_is_bounded_by_the_longest_word_and_the_gap(table_of):
    stream = WordFilter(table_of({"a": ["法轮功"]}))
    assert stream.push("法" + "\u200b" * MAX_GAP + "轮" + "-" * MAX_GAP) == ""
    assert stream.held == 2 * (MAX_GAP + 1)
    assert stream.push("-").startswith("法")


def test_hits_tell_where_and_never_what(table_of):
    _, hits = filter_text(table_of({"a": ["法轮"]}), "好法轮")
    assert [tuple(hit) for hit in hits] == [("a", 1, 3, "mask")]


def test_a_process_that_filters_reads_no_lists_and_no_character_tables(table_of, tmp_path):
    table_of({"a": ["法轮"]})
    program = (
        "import sys; from pathlib import Path; from bls.words.stream_filter import filter_text;"
        "from bls.words.table import *;"
        "print(filter_text(WordTable(Path(sys.argv[1])), '法 輪')[0]);"
        "from bls.words import normalise; assert normalise._tables.cache_info().currsize == 0;"
        "assert not {'bls.words.compiler', 'bls.words.lists', 'bls.words.pinyin', 'tomllib'} & set(sys.modules);"
        "assert not {'opencc', 'pypinyin', 'confusable_homoglyphs', 'ahocorasick_rs', 'tomli'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "compiled")], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("***", "")
