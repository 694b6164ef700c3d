import json
import logging
from pathlib import Path

import pytest

from bls.paths import ROOT, WORDS
from bls.words import lists as word_list
from bls.words.compiler import compile_folder
from bls.words.lists import Category, ListError
from bls.words.normalise import Folding
from bls.words.stream_filter import filter_text
from bls.words.table import MAGIC, BadWordTable, NewestTable, WordTable
from scripts import words as words_script

CLEAN = ROOT / "scripts" / "bench" / "data" / "clean_sentences.txt"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "deny/rude.txt", "# a comment\n\nfool\n法轮\n")
    return tmp_path


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    target = tmp_path_factory.mktemp("words") / "compiled.bin"
    compile_folder(WORDS, target)
    return WordTable(target)


def write(folder: Path, name: str, text: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def problems(folder: Path) -> list[str]:
    with pytest.raises(ListError) as caught:
        word_list.read(folder)
    return [f"{path.relative_to(folder)}:{line}: {message}" for path, line, message in caught.value.problems]


def test_a_list_is_its_lines_without_comments_and_blanks(folder):
    assert [word.text for word in word_list.read(folder).deny["rude"]] == ["fool", "法轮"]


def test_stars_open_a_word_and_are_no_part_of_it(folder):
    write(folder, "deny/rude.txt", "*fool*\nhack*\n")
    first, second = word_list.read(folder).deny["rude"]
    assert (first.text, first.open_left, first.open_right) == ("fool", True, True)
    assert (second.text, second.open_left, second.open_right) == ("hack", False, True)


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_words(folder):
    write(folder, "deny/rude.txt", b"\xef\xbb\xbffool\r\nbad\r\n")
    assert [word.text for word in word_list.read(folder).deny["rude"]] == ["fool", "bad"]


def test_a_category_that_is_not_mentioned_is_masked(folder):
    assert word_list.read(folder).categories == {"rude": Category("rude")}


def test_categories_toml_says_what_is_done(folder):
    write(folder, "categories.toml", '[filter]\nmask = "#"\nmax_gap = 5\n[categories.rude]\naction = "replace"\n'
          'text = "..."\ncase = false\npinyin = "full"\n[pii.email]\naction = "monitor"\n')  # fmt: skip
    lists = word_list.read(folder)
    assert (lists.mask, lists.max_gap) == ("#", 5)
    assert lists.categories["rude"] == Category("rude", "replace", "...", pinyin="full", folding=Folding(case=False))
    assert lists.pii["email"].action == "monitor"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("deny/rude.txt", b"fine\nb\xffd\n", "deny/rude.txt:2: not UTF-8: byte 2 of the line"),
        ("deny/rude.txt", "fine\n--\n", "deny/rude.txt:2: nothing remains of '--'"),
        ("deny/rude.txt", "x" * 201, "deny/rude.txt:1: longer than 200 characters"),
        ("allow/a.txt", "ok\n\u200b\u0301\n", "allow/a.txt:2: nothing remains of"),
        ("allow/a.txt", "fine\n\uff26ool\n", "deny/rude.txt:3: 'fool' is also allowed, by"),
        ("categories.toml", "[filter]\nmask = 'ab'\n", "categories.toml:2: mask is 'ab'; it must be one character"),
        ("categories.toml", "[filter]\nmax_gap = 999\n", "categories.toml:2: max_gap is 999; it must be a number from"),
        ("categories.toml", "[filter]\nmaks = '*'\n", "categories.toml:2: unknown option 'maks'"),
        ("categories.toml", "[categories.rude]\n\nactoin = 'mask'\n", "categories.toml:3: unknown option 'actoin'"),
        ("categories.toml", "[categories.rude]\naction = 'hide'\n", "categories.toml:2: action is 'hide'; it must be"),
        ("categories.toml", "[categories.rude]\ncase = 'no'\n", "categories.toml:2: case is 'no'; it must be of type"),
        ("categories.toml", "\n[categories.ruud]\n", "categories.toml:2: unknown categories 'ruud'; known: rude"),
        ("categories.toml", "[pii.iban]\n", "categories.toml:1: unknown pii 'iban'; known: email"),
        ("categories.toml", "[pii.email]\ncase = true\n", "categories.toml:2: unknown option 'case'"),
        ("categories.toml", "[catgories.rude]\n", "categories.toml:1: unknown section 'catgories'"),
        ("categories.toml", "[filter\n", "categories.toml:1: "),
        ("categories.toml", b"\xff\n", "categories.toml:1: not UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(folder, name, text, expected):
    write(folder, name, text)
    (problem,) = problems(folder)
    assert problem.startswith(expected)


def test_all_mistakes_are_told_at_once(folder):
    write(folder, "deny/rude.txt", b"\xff\n--\n")
    write(folder, "categories.toml", "[categories.rude]\nx = 1\n[pii.y]\n")
    assert len(problems(folder)) == 4


def test_a_folder_without_lists_is_a_mistake(tmp_path):
    assert problems(tmp_path) == ["deny:0: it contains no <category>.txt"]


def test_a_broken_list_leaves_the_compiled_file_as_it_was(folder):
    target = folder / "compiled.bin"
    version = compile_folder(folder, target)
    write(folder, "deny/rude.txt", b"\xff")
    with pytest.raises(ListError):
        compile_folder(folder, target)
    assert WordTable(target).version == version
    assert not list(folder.glob(".compiled*"))


def test_the_version_is_that_of_the_content(folder):
    target = folder / "compiled.bin"
    first = compile_folder(folder, target)
    assert compile_folder(folder, target) == first
    write(folder, "deny/rude.txt", "fool\n法轮\nnew\n")
    assert compile_folder(folder, target) != first


def test_a_new_compiled_file_is_for_new_streams(folder):
    clock = [0.0]
    target = folder / "compiled.bin"
    compile_folder(folder, target)
    newest = NewestTable(target, lambda: clock[0])
    old = newest.table()
    write(folder, "deny/rude.txt", "newword\n")
    compile_folder(folder, target)
    assert newest.table() is old  # not looked at again within a second
    clock[0] += 1.1
    new = newest.table()
    assert filter_text(new, "fool newword")[0] == "fool *******"
    assert filter_text(old, "fool newword")[0] == "**** newword"
    clock[0] += 1.1
    assert newest.table() is new


def put(target, content):
    """The compiled file can't be written in place."""
    target.unlink()
    target.write_bytes(content)


@pytest.mark.parametrize("content", [b"", b"nonsense", MAGIC + b"\xff" * 30, None])
def test_a_broken_compiled_file_is_refused_and_the_last_good_one_stays(folder, content, caplog):
    clock = [0.0]
    target = folder / "compiled.bin"
    compile_folder(folder, target)
    newest = NewestTable(target, lambda: clock[0])
    good = newest.table()
    if content is None:
        target.unlink()
    else:
        put(target, content)
        with pytest.raises(BadWordTable):
            WordTable(target)
    clock[0] += 1.1
    with caplog.at_level(logging.WARNING):
        assert newest.table() is good
    assert "the last good word list stays in use" in caplog.text


def test_a_file_cut_short_is_refused(folder):
    target = folder / "compiled.bin"
    compile_folder(folder, target)
    put(target, target.read_bytes()[:-4])
    with pytest.raises(BadWordTable, match="cut short"):
        WordTable(target)


def test_without_any_compiled_file_there_is_no_table(tmp_path):
    with pytest.raises(BadWordTable):
        NewestTable(tmp_path / "none").table()


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("plain", "海洛因"), ("upper case", "COCAINE"), ("mixed case", "CoCaInE"), ("full-width", "\uff43ocaine"),
        ("zero-width space", "coc\u200baine"), ("zero-width joiner", "海\u200d洛因"), ("soft hyphen", "co\u00adcaine"),
        ("bidirectional override", "\u202ecoc\u202caine"), ("word joiner", "coca\u2060ine"),
        ("variation selector", "海\ufe0f洛因"), ("byte order mark", "coca\ufeffine"), ("tag", "coca\U000e0001ine"),
        ("combining mark", "co\u0301caine"), ("stacked marks", "c\u0336o\u0335c\u0334aine"),
        ("precomposed accents", "c\u00f6ca\u00efn\u00e9"), ("cyrillic", "\u0441\u043e\u0441aine"),
        ("greek", "c\u03bfcaine"), ("armenian", "c\u0585caine"), ("circled", "\u24d2\u24de\u24d2\u24d0ine"),
        ("negative circled", "\U0001f152\U0001f15ecaine"), ("squared", "\U0001f132\U0001f13ecaine"),
        ("mathematical", "\U0001d4ec\U0001d4f8\U0001d4ec\U0001d4eaine"), ("double-struck", "\U0001d554ocaine"),
        ("superscript", "c\u1d52caine"), ("small capitals", "\u1d04\u1d0f\u1d04\u1d00\u026a\u0274\u1d07"),
        ("regional indicators", "\U0001f1e8\U0001f1f4caine"), ("parenthesised", "\u249e\u24aacaine"),
        ("traditional", "代開發票"), ("mixed traditional", "代开發票"), ("compatibility ideograph", "賭博網站"),
        ("space", "海 洛 因"), ("stars", "海*洛*因"), ("dots", "海.洛.因"), ("dashes", "海-洛-因"),
        ("underscores", "海_洛_因"), ("middle dot", "海·洛·因"), ("slash", "海/洛/因"), ("line breaks", "海\n洛\n因"),
        ("plus", "海+洛+因"), ("emoji", "海\U0001f33f洛\U0001f33f因"), ("brackets", "【海】【洛】【因】"),
        ("ideographic space", "海\u3000洛\u3000因"), ("repeats", "cocaaaaine"), ("chinese repeats", "海洛洛洛因"),
        ("every letter repeated", "ccccooooccccaaaaiiiinnnneeee"), ("pinyin", "liuhecai"),
        ("spaced pinyin", "liu he cai"), ("capital pinyin", "Liu He Cai"), ("mixed pinyin", "六he彩"),
        ("mixed pinyin, spaced", "hai 洛 yin"), ("toned pinyin", "li\u00f9h\u00e9c\u01cei"),
        ("beside chinese", "买cocaine吗"),
        ("everything", "\u6d77\u200b * \u6d1b\u0301-\u56e0"),
    ],
)  # fmt: skip
def test_evasions_are_caught_with_the_shipped_lists(shipped, form, text):
    for before, after in (("", ""), ("He said: ", " today."), ("他说", "了。")):
        out, hits = filter_text(shipped, before + text + after)
        assert hits, form
        assert out.startswith(before)
        assert out.endswith(after)
        assert text not in out


SENTENCES = [line for line in CLEAN.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]


def test_the_clean_corpus_is_large():
    assert len(SENTENCES) >= 300


def test_innocent_sentences_pass_unchanged_with_the_shipped_lists(shipped):
    assert [sentence for sentence in SENTENCES if filter_text(shipped, sentence) != (sentence, [])] == []


def test_innocent_sentences_do_hold_listed_words(folder, tmp_path):
    """Without boundaries and allow words many of them would be hit: that is what the corpus is for."""
    lists = word_list.read(WORDS)
    naive = [word.text for words in lists.deny.values() for word in words]
    assert sum(any(word in sentence.lower() for word in naive) for sentence in SENTENCES) >= 30


def test_check_tells_what_is_there(capsys):
    assert words_script.main(["check"]) == 0
    assert "profanity" in capsys.readouterr().out


def test_check_refuses_a_broken_list_with_file_and_line(folder, capsys):
    write(folder, "deny/rude.txt", "--\n")
    assert words_script.main(["check", "--folder", str(folder)]) == 1
    assert f"{folder}/deny/rude.txt:1: nothing remains" in capsys.readouterr().err
    assert words_script.main(["check", "--folder", str(folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["line"] == 1


def test_compile_writes_the_compiled_file(folder, capsys):
    assert words_script.main(["compile", "--folder", str(folder), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert WordTable(folder / "compiled.bin").version == summary["version"]


def test_try_shows_what_goes_out_and_why(folder, capsys):
    write(folder, "allow/a.txt", "foolscap\n")
    write(folder, "deny/rude.txt", "fool*\n")
    assert words_script.main(["try", "--folder", str(folder), "a \uff46ool on foolscap"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a **** on foolscap\n")
    assert "mask       rude         2-6" in out
    assert "allowed    rude" in out
    assert words_script.main(["try", "--folder", str(folder), "--json", "fool"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["compared_as"] == "fool"
