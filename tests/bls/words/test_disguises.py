"""Disguises that are options of a category, each with innocent texts that look alike."""

import itertools
from collections.abc import Callable

import pytest

from bls.words.compiler import compile_lists
from bls.words.lists import Category
from bls.words.normalise import Folding
from bls.words.prefilter import TextScanner
from bls.words.stream_filter import WordFilter, filter_text
from bls.words.table import WordTable
from tests.word_streams import lists_of


@pytest.fixture
def table_of(tmp_path) -> Callable[..., WordTable]:
    def compiled(words, **options) -> WordTable:
        compile_lists(lists_of({"a": words}, [], {"a": Category("a", **options)}, max_gap=16), tmp_path / "compiled")
        return WordTable(tmp_path / "compiled")

    return compiled


DISGUISES = {
    "digits for letters": (
        ["heroin", "casino", "shit", "ass"],
        {"digits": False},
        ["h3r01n", "c@51n0", "sh1t", "shi7", "Ca$ino!", "H3ROIN"],
        ["a Galaxy A55", "1633", "5417", "mp3", "h3", "c3r", "A$$ 5", "he40in2", "ca51no7", "5.1.0", "c51n"],
    ),
    "Greek letters by look": (["casino", "heroin"], {"look_alikes": False}, ["cαsіηο", "heroiη"], ["κασα"]),
    "doubled Chinese characters": (
        ["代开发票", "毒品", "高兴"],
        {"doubled": False},
        ["代代开开发发票票"],
        ["代代开", "毒毒药药", "品品毒毒"],
    ),
    "pinyin letter by letter": (
        ["赌博", "洗钱"],
        {"pinyin": "off"},
        ["d u b o", "d-u-b-o", "x.i.q.i.a.n"],
        ["du b", "d u b"],
    ),
    "a digit between two characters": (
        ["傻逼", "毒品"],
        {"digits": False},
        ["傻1逼", "毒8品"],
        ["傻12逼", "1毒1药1品", "第1名", "毒、1、品", "5月1日"],
    ),
    "a number behind an advertisement's word": (
        ["加V", "加微信a"],
        {"whole_words": True, "repeats": False},
        ["加V123", "加v88888", "加V 123", "加微信a123456"],
        ["加VIP", "加V8引擎", "加V12缸", "加v2ray"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguise_is_seen_through_and_innocent_texts_are_not(table_of, disguise):
    words, _, caught, innocent = DISGUISES[disguise]
    options = {"pinyin": "full"} if "pinyin" in disguise else {}
    table = table_of(words, **options)
    assert [text for text in caught if not filter_text(table, text)[1]] == []
    assert [text for text in innocent if filter_text(table, text)[1]] == []


@pytest.mark.parametrize("disguise", [name for name in DISGUISES if "number" not in name])
def test_a_category_may_do_without_it(table_of, disguise):
    words, options, caught, _ = DISGUISES[disguise]
    if "look_alikes" in options:
        options = {"folding": Folding(look_alikes=False)}
    table = table_of(words, **options)
    assert [text for text in caught if filter_text(table, text)[1]] == []


@pytest.mark.parametrize("disguise", DISGUISES)
def test_streams_and_scans_see_the_same_and_nothing_leaks(table_of, disguise):
    words, _, caught, innocent = DISGUISES[disguise]
    table = table_of(words, **({"pinyin": "full"} if "pinyin" in disguise else {}))
    for first, second in itertools.product((*caught, *innocent), ("", *caught)):
        text = f"{first} {second}"
        expected = filter_text(table, text)
        assert TextScanner(table).scan_all([text]) == [expected]
        out, stream = "", WordFilter(table)
        for character in text:
            out += stream.push(character)
            assert expected[0].startswith(out)
        assert out + stream.finish() == expected[0]
