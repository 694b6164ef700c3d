"""Over a thousand innocent sentences in two dozen languages: none is hit, neither by the shipped lists nor by traps."""

from pathlib import Path

import pytest

from bls.paths import ROOT, WORDS
from bls.words import lists as word_list
from bls.words.compiler import compile_lists
from bls.words.lists import Category
from bls.words.stream_filter import filter_text
from bls.words.table import WordTable
from tests.word_streams import lists_of

DATA = ROOT / "scripts" / "bench" / "data"
FILES = ("clean_sentences.txt", "clean_languages.txt", "honest_questions.txt")
# Words whose letters stand inside, or differ by an accent from, words of these sentences.
TRAPS = """
бля лох гад ета ание ебля рот cặc đụ cono culo puta puto pasa sik amc ass cock tit anal cum sex crap rape
heroin scam hell damn arse dick shit spic fag 1633.in
كلب حمار قحبة صلب زب גדא זין गधा लंड 자위 자지 시발 새끼 바보 보지 섹스 チンコ レイプ ハゲ スカ ペニス アナル コック
毒品 刷单 洗钱 套现 代开发票 加V 赌博 大麻
""".split()  # noqa: SIM905
# Chinese has no borders: there such words need words/allow.
ALLOWED = (WORDS / "allow" / "chinese.txt").read_text(encoding="utf-8").split("\n")[1:-1]


def sentences() -> list[str]:
    lines = [line for name in FILES for line in (DATA / name).read_text(encoding="utf-8").split("\n")]
    return [line for line in lines if line and not line.startswith(("# ", "== "))]


def test_the_corpus_is_large():
    assert len(set(sentences())) >= 1000
    text = (DATA / "clean_languages.txt").read_text(encoding="utf-8")
    assert len([line for line in text.split("\n") if line.startswith("== ")]) >= 12


@pytest.fixture
def table_of(tmp_path: Path):
    def compiled(lists) -> WordTable:
        compile_lists(lists, tmp_path / "compiled")
        return WordTable(tmp_path / "compiled")

    return compiled


def test_the_shipped_lists_hit_none(table_of):
    table = table_of(word_list.read(WORDS))
    assert [text for text in sentences() if filter_text(table, text)[1]] == []


def test_words_that_stand_inside_others_hit_none(table_of):
    table = table_of(lists_of({"a": TRAPS}, ALLOWED, {"a": Category("a", pinyin="mixed")}, max_gap=16))
    assert [(text, filter_text(table, text)[0]) for text in sentences() if filter_text(table, text)[1]] == []


def test_a_plain_search_would_hit_many():
    assert sum(any(word.lower() in text.lower() for word in TRAPS) for text in sentences()) >= 100
