import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bls.words.compiler import compile_folder
from bls.words.lists import PII_KINDS
from bls.words.prefilter import TextScanner
from bls.words.stream_filter import filter_text
from bls.words.table import WordTable

PIECES = [
    "foo", "bar", "foo bar", "f", "法", "轮", "法轮", "輪", "\uff46", "\ufb00", "a", "b", "1", " ", "-", "+", "\u200b",
    "\U0001f600", "\U0001d41a", "\U00020000", "o", "oo", ".", "\n", "a@b.cc", "13812345678", "ab", "aab",
]  # fmt: skip


@pytest.fixture(scope="session", params=["words", "words and personal data"])
def scanner(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scan")
    (folder / "deny").mkdir()
    (folder / "deny" / "one.txt").write_text("foo bar\nfoo\n法轮\nab*\n*ff\n+b\nc\n")
    (folder / "deny" / "two.txt").write_text("AB\nFoo\n")
    settings = "[categories.two]\ncase = false\n"
    if "personal" in request.param:
        settings += "".join(f"[pii.{kind}]\n" for kind in PII_KINDS)
    (folder / "categories.toml").write_text(settings)
    (folder / "allow").mkdir()
    (folder / "allow" / "a.txt").write_text("法轮常转\n")
    compile_folder(folder, folder / "compiled.bin")
    return TextScanner(WordTable(folder / "compiled.bin"))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), max_size=6))
def test_a_scan_gives_what_a_stream_gives(scanner, texts):
    expected = [filter_text(scanner._table, text) for text in texts]
    assert scanner.scan_all(texts) == expected
    assert [scanner.scan(text) for text in texts] == expected
    long = "an innocent beginning, " * 30 + " ".join(texts)
    assert scanner.scan(long) == filter_text(scanner._table, long)


def test_texts_do_not_run_into_each_other(scanner):
    assert scanner.scan_all(["法", "轮"]) == [("法", []), ("轮", [])]


def test_long_texts_are_looked_at_in_portions(scanner):
    texts = ["x" * 40_000, "法轮", "y" * 70_000, "foo"]
    assert [text[-4:] for text, _ in scanner.scan_all(texts)] == ["xxxx", "**", "yyyy", "***"]


def test_an_innocent_text_needs_no_closer_look(scanner):
    text = "The quick brown fox jumps over the lazy dog."
    assert not scanner.looks_suspicious(text)
    assert scanner.looks_suspicious("some foo")


# Words whose runs, digits and signs a text may write in other ways, and what such texts are made of.
DISGUISED = [
    ["aaab", "oo", "wwwx.com", "好好好人", "casino", "代开lilith", "发票", "年月"],
    ["casino", "年月", "abcd法iopq", "heroin", "café", "好人"],
    ["第3次", "99oooo", "b4d", "c@t", "x*", "*sss*", "年月日"],
]
LETTERS = ["a", "aa", "aaa", "aaaa", "b", "o", "好", "好好好", "人", "w", "x", ".", "com", "s", "S", "年", "月", "日"]
SIGNS = ["0", "1", "3", "4", "5", "9", "2", "@", "$", "*", " ", "\u200b", "\u0301", "é", "½", "法", "\uff11", "-"]
WORDS = ["casino", "c@51n0", "lilith", "代开", "iopq", "abcd", "heroin", "h3r01n", "第", "次", "发", "cafe"]


@pytest.fixture(scope="session", params=range(len(DISGUISED)))
def disguised(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("disguised")
    (folder / "deny").mkdir()
    (folder / "deny" / "one.txt").write_text("\n".join(DISGUISED[request.param]))
    (folder / "deny" / "two.txt").write_text("oo\n好好人\n")
    (folder / "categories.toml").write_text("[categories.two]\ncase = false\n")
    compile_folder(folder, folder / "compiled.bin")
    return TextScanner(WordTable(folder / "compiled.bin"))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.lists(st.sampled_from(LETTERS + SIGNS + WORDS), max_size=12).map("".join), max_size=4))
def test_runs_digits_and_signs_are_seen_by_a_scan_as_by_a_stream(disguised, texts):
    assert disguised.scan_all(texts) == [filter_text(disguised._table, text) for text in texts]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("aaab", "x aaaab y"),
        ("wwwx.com", "go wwwwx.com"),
        ("代开lilith", "我代开1ilith"),
        ("99oooo", "a 990000 b"),
        ("abcd法iopq", "abcd法1opq"),
        ("casino", "c\u200b@sino"),
        ("发票", "发3票"),
    ],
)
def test_a_scan_finds_what_a_word_is_disguised_as(tmp_path, word, text):
    (tmp_path / "deny").mkdir()
    (tmp_path / "deny" / "one.txt").write_text(word)
    compile_folder(tmp_path, tmp_path / "compiled.bin")
    table = WordTable(tmp_path / "compiled.bin")
    (scanned,) = TextScanner(table).scan_all([text])
    assert scanned == filter_text(table, text)
    assert scanned[1]


def test_runs_and_lone_digits_of_no_word_need_no_closer_look(tmp_path):
    (tmp_path / "deny").mkdir()
    (tmp_path / "deny" / "one.txt").write_text("aaab\ncasino\n发票\n")
    compile_folder(tmp_path, tmp_path / "compiled.bin")
    look = TextScanner(WordTable(tmp_path / "compiled.bin")).looks_suspicious
    texts = ["Aaaaah, hmmm", "2024年3月5日，哈哈哈", "grass seeds", "x² = 4", "GPT4"]
    assert [text for text in texts if look(text)] == []
    assert look("an aaaab, a casssino")
