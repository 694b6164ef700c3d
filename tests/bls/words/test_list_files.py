"""Word lists as editors save them, and words that are more than letters."""

from pathlib import Path

import pytest

from bls.words import lists as word_list
from bls.words.compiler import compile_folder
from bls.words.list_warnings import warnings_of
from bls.words.lists import ListError
from bls.words.prefilter import TextScanner
from bls.words.stream_filter import filter_text
from bls.words.table import WordTable
from scripts import words as words_script
from tests.word_streams import pushed

CHINESE = "".join(
    f"{word}\n" for word in ["毒品", "海洛因", "大麻", "赌博网站", "假证件", "代开发票", "枪支弹药"] * 500
)
TRADITIONAL = "".join(f"{word}\n" for word in ["毒品", "賭博網站", "假證件", "代開發票", "槍支彈藥", "色情電影"] * 500)
RUSSIAN = "плохой\nдурак\nослиный\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deny").mkdir()
    return tmp_path


def write(folder: Path, data: bytes | str, name: str = "a.txt") -> None:
    (folder / "deny" / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def words_of(folder: Path) -> list[str]:
    return [word.text for word in word_list.read(folder).deny["a"]]


def problems(folder: Path) -> list[str]:
    with pytest.raises(ListError) as caught:
        word_list.read(folder)
    return list(map(str, caught.value.problems))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize(
    "text", ["fool\nbad\n", "毒品\n大麻\n", "代开发票\n一丁\n"]
)  # 开 and 一 have a byte 0 themselves
def test_other_forms_of_unicode_are_read(folder, encoding, text):
    write(folder, text.encode(encoding))
    assert words_of(folder) == text.split()


@pytest.mark.parametrize(
    ("encoding", "text", "named"),
    [
        ("gbk", CHINESE, "GB18030"), ("gb18030", CHINESE, "GB18030"), ("big5", TRADITIONAL, "BIG5"),
        ("gbk", "毒品\n", "GB18030"), ("cp1251", RUSSIAN, "CP1251"), ("euc-kr", "바보\n멍청이\n나쁜놈\n", "EUC-KR"),
        ("shift_jis", "ばか者\n麻薬取引\nカジノ\n", "SHIFT_JIS"), ("cp1252", "coño\npuñetero\nGlück\n", "CP1252"),
        ("cp1252", "Ärger\nmerde\nPöbel\n", "CP1252"),
    ],
)  # fmt: skip
def test_another_encoding_is_told_in_one_line_that_says_how_to_convert_it(folder, encoding, text, named):
    write(folder, text.encode(encoding))
    (problem,) = problems(folder)
    assert named in problem
    assert "iconv -f" in problem
    assert problem.startswith(f"{folder}/deny/a.txt:1: ")


def test_a_binary_file_is_a_few_lines_at_most(folder):
    write(folder, bytes(range(128, 256)) + b"\n" + b"\n".join(b"\xff" for _ in range(3000)))
    assert len(problems(folder)) <= 6


def test_lines_may_end_with_a_lone_cr_and_files_may_be_joined(folder):
    write(folder, "fool\rbad\r\n\ufeffworse\n\ufeff# a comment\n")
    assert words_of(folder) == ["fool", "bad", "worse"]


@pytest.mark.parametrize(
    "text",
    ["fool|1\nbad|2\n", "fool\t1\nbad\tx\n", "fool,1\nbad,3\n", "fool;2\n",
     "毒品,政治\n大麻,毒\n枪支,武器\n假证,诈骗\n裸聊,色情\n"],
)  # fmt: skip
def test_a_second_column_is_told_in_one_line(folder, text):
    write(folder, text)
    (problem,) = problems(folder)
    assert "a second column" in problem
    assert "cut " in problem


def test_a_word_may_hold_a_number_or_a_comma(folder):
    write(folder, "bet365\n10,000\nwell, well\nsite.com\n")
    assert len(words_of(folder)) == 4


def test_all_words_in_one_line_are_told(folder):
    write(folder, "、".join(["毒品"] * 200))
    (problem,) = problems(folder)
    assert "one word on a line" in problem


def test_files_of_finder_and_editors_are_no_lists(folder):
    write(folder, "fool\n")
    write(folder, b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X", "._a.txt")
    assert list(word_list.read(folder).deny) == ["a"]


def table_of(folder: Path, *words: str) -> WordTable:
    write(folder, "".join(f"{word}\n" for word in words))
    compile_folder(folder, folder / "compiled.bin")
    return WordTable(folder / "compiled.bin")


@pytest.mark.parametrize(
    ("word", "hit", "clean"),
    [
        ("1633.in", ["see 1633.in now", "www.1633.IN", "1633[.]in", "1633．in", "1633。in", "1633 (dot) in",
          "1633(.)in"],
         ["tried in 1633 in Rome", "in 1633. In Rome", "1633-in", "1633 in", "11633.in", "1633.info", "1633in"]),
        ("my-shop.example.com", ["my-shop.example.com/x"], ["my shop example com"]),
        (r"\#metoo", ["#metoo", "#MeToo!"], ["metoo", "# metoo"]),
        ("C++", ["C++", "learn c++."], ["C", "C+", "C--"]),
        ("@@@@", ["@@@@", "a @@@@@ b"], ["@", "a@b"]),
        ("\U0001f44d\U0001f3ff", ["\U0001f44d\U0001f3ff"], ["\U0001f44d", "\U0001f44d\U0001f3fe", "\U0001f3ff"]),
    ],
)  # fmt: skip
def test_signs_of_a_word_mean_those_signs(folder, word, hit, clean):
    table = table_of(folder, word)
    assert [text for text in hit if not filter_text(table, text)[1]] == []
    assert [text for text in clean if filter_text(table, text)[1]] == []
    for text in (*hit, *clean):
        expected = filter_text(table, text)
        assert TextScanner(table).scan_all([text]) == [expected]
        assert "".join(pushed(table, list(text))[0]) == expected[0]


def test_a_star_inside_a_word_is_refused(folder):
    write(folder, "b*tch\n")
    (problem,) = problems(folder)
    assert "has a * inside" in problem


def test_words_that_match_everywhere_are_warned_of_with_file_and_line(folder, capsys):
    write(folder, "O\u0337\n<br>\n自\n64\n毒品\nfool\nhäßlich\n")
    assert [word.line for word, _ in warnings_of(word_list.read(folder))] == [1, 2, 3, 4]
    assert words_script.main(["check", "--folder", str(folder)]) == 0
    assert f"{folder}/deny/a.txt:1: warning: 'O\u0337' is one letter" in capsys.readouterr().err


def test_a_word_that_ignored_accents_make_a_frequent_one_is_warned_of(folder):
    write(folder, "cặc\nano\n")
    (folder / "categories.toml").write_text("[categories.a]\nlist_accents = false\n")
    messages = [message for _, message in warnings_of(word_list.read(folder))]
    assert ["các (vi)" in messages[0], "año (es)" in messages[1]] == [True, True]


def test_try_names_the_line_of_each_hit(folder, capsys):
    write(folder, "good\nfool*\nbad word\n")
    assert words_script.main(["try", "--folder", str(folder), "a fooool and a bad-word"]) == 0
    out = capsys.readouterr().out
    assert f"by {folder}/deny/a.txt:2" in out
    assert f"by {folder}/deny/a.txt:3" in out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1,毒品\n2,迷药\n3,代开\n", "a number before the word, in 3 lines"),
        ('"毒品","drugs"\n"迷药","drugs"\n', "words in quotes and columns, in 2 lines"),
        ('["毒品","迷药"]\n', "words in quotes and columns, in 1 lines"),
        ("heroin\0casino\n", "a NUL byte"),
    ],
)
def test_what_is_no_list_of_words_is_told_in_one_line(folder, text, complaint):
    write(folder, text)
    (problem,) = problems(folder)
    assert complaint in problem


@pytest.mark.parametrize("text", ["7,62 mm\n9mm\n", '"quoted"\n', "1,5\n毒品\n"])
def test_single_words_with_numbers_and_quotes_stay_words(folder, text):
    write(folder, text)
    assert len(words_of(folder)) == text.count("\n")
