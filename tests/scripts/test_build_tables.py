import unicodedata

import pytest

from scripts import build_tables


def shipped(name: str) -> str:
    return (build_tables.DATA / name).read_text(encoding="utf-8")


def test_the_shipped_characters_are_those_of_the_libraries():
    pytest.importorskip("confusable_homoglyphs", reason="needed only to make the tables anew")
    pytest.importorskip("opencc", reason="needed only to make the tables anew")
    if f"# Unicode {unicodedata.unidata_version}\n" not in shipped("characters.txt"):
        pytest.skip("this Python knows another version of Unicode")
    assert "".join(build_tables.character_lines()) == shipped("characters.txt")


def test_the_shipped_pinyin_is_that_of_the_library():
    pytest.importorskip("pypinyin", reason="needed only to make the tables anew")
    assert "".join(build_tables.pinyin_lines()) == shipped("pinyin.txt")


@pytest.mark.parametrize(
    ("character", "kind"),
    [("\u200b", "invisible"), ("\u0301", "mark"), (" ", "separator"), ("+", "soft"), ("a", "letter")],
)
def test_classes(character, kind):
    assert build_tables.class_of(character) == kind


def test_runs_join_what_is_side_by_side():
    assert list(build_tables.runs(iter("abcxz"))) == [(97, 99), (120, 120), (122, 122)]
