"""Which line of a list a match was found by, from the compiled file."""

import pytest

from bls.words import compiler
from bls.words.compiler import compile_folder
from bls.words.stream_filter import WordFilter, filter_text
from bls.words.table import WordTable

# Some fill blocks of the file's nodes, in three ways to match, and a remark and a blank line count as lines.
FILLING = [f"filling{number}" for number in range(300)]
NAMES = ["# remark", "", "acme", "casino", "代开", "foo bar", "sh*", "café", "1633.in", "cafés"]
ALSO = [*FILLING, "acme", "法轮"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deny").mkdir()
    (tmp_path / "deny" / "names.txt").write_text("\n".join([*NAMES, *FILLING]))
    (tmp_path / "deny" / "also.txt").write_text("\n".join(ALSO))
    (tmp_path / "deny" / "bare.txt").write_text("other\nplain\n")
    (tmp_path / "allow").mkdir()
    (tmp_path / "allow" / "one.txt").write_text("acmeology\ncasino royale\n")
    (tmp_path / "categories.toml").write_text("[categories.bare]\ndigits = false\ncase = false\n")
    return tmp_path


def lines_of(table, text):
    stream = WordFilter(table)
    for character in text:
        stream.push(character)
    stream.finish()
    return set(stream.lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing of it, acmeology, casino royale", set()),
        ("an Acme", {"deny/names.txt:3", "deny/also.txt:301"}),
        ("c@51n0 and CASSSSINO", {"deny/names.txt:4"}),
        ("代代开开", {"deny/names.txt:5"}),
        ("a foo  bar", {"deny/names.txt:6"}),
        ("ship", {"deny/names.txt:7"}),
        ("a cafe\u0301", {"deny/names.txt:8"}),
        ("1633[.]in", {"deny/names.txt:9"}),
        ("法轮 and plain", {"deny/also.txt:302", "deny/bare.txt:2"}),
        ("filling0", {"deny/names.txt:11", "deny/also.txt:1"}),
        ("filling299", {"deny/names.txt:310", "deny/also.txt:300"}),
    ],
)
def test_each_match_is_named_by_the_line_of_its_list_however_it_is_written(folder, text, expected):
    compile_folder(folder, folder / "compiled.bin")
    assert lines_of(WordTable(folder / "compiled.bin"), text) == expected


def test_every_line_of_a_list_is_found_by_its_own_word(folder):
    compile_folder(folder, folder / "compiled.bin")
    table = WordTable(folder / "compiled.bin")
    for name, words in (("names", NAMES), ("also", ALSO)):
        for number, word in enumerate(words, 1):
            if word and not word.startswith("#"):
                assert f"deny/{name}.txt:{number}" in lines_of(table, f"a {word.strip('*')} b"), word


def test_a_file_without_lines_hides_the_same_and_names_none(folder, monkeypatch):
    compile_folder(folder, folder / "compiled.bin")
    monkeypatch.setattr(compiler, "_lines", lambda by_node, entries: {})  # as an older release compiled it
    compile_folder(folder, folder / "older.bin")
    older = WordTable(folder / "older.bin")
    text = "an Acme c@51n0 代开 ship"
    assert filter_text(older, text) == filter_text(WordTable(folder / "compiled.bin"), text)
    assert lines_of(older, text) == set()
