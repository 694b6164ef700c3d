"""What is hidden from the engine, and the first look that spares most prompts the exact one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bls.safety.mask import Span, WordFinder, masked, personal_spans
from bls.words.compiler import compile_folder
from bls.words.pii import PiiMatcher
from bls.words.pii_kinds import KINDS
from bls.words.prefilter import may_be_personal
from bls.words.stream_filter import filter_text
from bls.words.table import WordTable
from tests.bls.words.test_pii import EXAMPLES_OF, MASKED, NUMBERS
from tests.bls.words.test_prefilter import PIECES


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mask")
    (folder / "deny").mkdir()
    (folder / "deny" / "one.txt").write_text("foo bar\nfoo\n法轮\nab*\n*ff\n+b\nc\n")
    (folder / "deny" / "two.txt").write_text("AB\nFoo\n")
    (folder / "categories.toml").write_text('[categories.two]\ncase = false\naction = "monitor"\n')
    (folder / "allow").mkdir()
    (folder / "allow" / "a.txt").write_text("法轮常转\n")
    compile_folder(folder, folder / "compiled.bin")
    return WordTable(folder / "compiled.bin")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_words_are_found_as_a_stream_finds_them(table, text):
    finder = WordFinder(table)
    for whole in (text, "an innocent beginning, " * 20 + text):
        expected = [(hit.start, hit.end, hit.category) for hit in filter_text(table, whole)[1]]
        assert [span[:3] for span in finder.spans(whole)] == expected


def test_a_word_that_would_end_an_answer_does_not_end_the_look(tmp_path):
    (tmp_path / "deny").mkdir()
    (tmp_path / "deny" / "a.txt").write_text("stop\n")
    (tmp_path / "deny" / "b.txt").write_text("more\n")
    (tmp_path / "categories.toml").write_text('[categories.a]\naction = "terminate"\n')
    compile_folder(tmp_path, tmp_path / "compiled.bin")
    found = WordFinder(WordTable(tmp_path / "compiled.bin")).spans("stop, more, stop")
    assert [span.name for span in found] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], "abcdef"),
        ([(1, 3, None)], "a**def"),
        ([(1, 3, None), (2, 5, None)], "a****f"),
        ([(1, 3, "[x]")], "a[x]def"),
        ([(1, 3, "[x]"), (3, 4, "[y]")], "a[x][y]ef"),
        ([(1, 3, "[x]"), (1, 5, "[y]")], "a[y]f"),
        ([(1, 3, "[x]"), (2, 5, None)], "a[x]f"),
        ([(2, 5, None), (1, 3, "")], "af"),
        ([(0, 6, "")], ""),
    ],
)
def test_spans_are_hidden(spans, expected):
    assert masked("abcdef", [Span(start, end, "name", text) for start, end, text in spans], "*") == expected


@st.composite
def personal(draw):
    kind = draw(st.sampled_from(list(EXAMPLES_OF)))
    text = draw(st.sampled_from(EXAMPLES_OF[kind]))
    disguise = draw(st.sampled_from(["", "\u200b", "\u0301", "\u00ad", "\ufe0f", "full-width", "mathematical"]))
    if disguise == "full-width":
        text = "".join(chr(ord(c) + 0xFEE0) if c.isalnum() or c in "@-_" else c for c in text)
    elif disguise == "mathematical":
        text = "".join(chr(0x1D7CE + int(c)) if c.isdigit() else c for c in text)
    else:
        text = disguise.join(text)
    before, after = (
        draw(st.sampled_from(["", "我的：", "see ", "(", "a"])),
        draw(st.sampled_from(["", "。", " ok", "1"])),
    )
    return before + text + after


@settings(max_examples=300, deadline=None)
@given(st.lists(personal() | st.sampled_from([*PIECES, "@", "13", "你好，", "sk-"]), max_size=5).map("".join))
def test_the_first_look_misses_no_personal_data_and_the_whole_look_is_a_streams(text):
    found = PiiMatcher(NUMBERS, MASKED).whole(text)
    stream = PiiMatcher(NUMBERS, MASKED)
    assert sorted(found) == sorted([*stream.feed(text), *stream.finish()])
    if found:
        assert may_be_personal(text)
    assert [(span.start, span.end) for span in personal_spans(text, KINDS, {})] == [each[:2] for each in sorted(found)]


@pytest.mark.parametrize("kind", EXAMPLES_OF)
def test_each_kind_is_masked_by_its_name_and_only_if_it_is_wanted(kind):
    for text in EXAMPLES_OF[kind]:
        assert masked(f"x {text} y", personal_spans(f"x {text} y", [kind], {}), "*") == f"x [{kind}] y"
        assert personal_spans(text, [kind], {kind: "?"})[0].text == "?"
        assert all(span.name != kind for span in personal_spans(text, [other for other in KINDS if other != kind], {}))


def test_ordinary_text_needs_no_exact_look():
    for text in (
        "你好，世界。“引号”——AI，GPT！（括号）：；",
        "see “this” — it's fine… ok",
        "in 2024, 15 %",
        "日本語・テスト",
    ):
        assert not may_be_personal(text)
