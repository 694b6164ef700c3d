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
