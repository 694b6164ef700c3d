"""Where a listed word begins and ends, in every script: the table of docs/words.md, line by line."""

import itertools
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bls.words.compiler import compile_lists
from bls.words.lists import Category
from bls.words.normalise import Folding, normaliser
from bls.words.prefilter import TextScanner
from bls.words.stream_filter import WordFilter, filter_text
from bls.words.table import WordTable
from tests.word_streams import EXAMPLES, MAX_GAP, cut, lists_of, oracle_text, pushed

# Every example compiles lists of its own, which takes longer than all its texts.
thorough = settings(
    max_examples=max(10, EXAMPLES // 12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def table_of(tmp_path) -> Callable[..., WordTable]:
    def compiled(deny, allow=(), categories=None, **more) -> WordTable:
        categories = categories or {name: Category(name) for name in deny}
        compile_lists(lists_of(deny, list(allow), categories, **more), tmp_path / "compiled")
        return WordTable(tmp_path / "compiled")

    return compiled


WORDS = {
    "latin": (["rat"], ["a rat, RAT; r\u00e1t", "the-rat's"], ["rate", "pirate", "rat2", "2rat", "ratée"]),
    "cyrillic": (
        ["бля", "лох", "рак", "гад"],
        ["бля!", "ЛОХ", "— рак, гад."],
        ["рубля; корабля не видно, оскорблять", "ракета", "гадание", "плохо", "загадка"],
    ),
    "greek": (["κακός"], ["Κακός", "ΚΑΚΟΣ", "κακος;"], ["κακόςος", "άκακός", "κακόςα"]),
    "armenian": (["էշ"], ["էշ։", "մի էշ"], ["էշեր", "բէշ"]),
    "georgian": (["ვირი"], ["ვირი!"], ["ვირისა", "თავირი"]),
    "hebrew": (["חמור"], ["חמור!", "החמור", "והחמור", "חמורים", "שלחמור"[1:]], ["חמורבי", "צחמור"]),
    "arabic": (["كلب"], ["كلب!", "الكلب", "وكلب", "والكلب", "كلبها", "كَلْب"], ["كلبش", "سكلب"]),
    "persian": (["گدا"], ["گدا", "یک گدا."], ["گدازه", "بگدا"]),
    "devanagari": (["गधा"], ["गधा।", "एक गधा है"], ["गधाई", "अगधा", "गधां"]),
    "bengali": (["গাধা"], ["গাধা।"], ["গাধার", "আগাধা"]),
    "tamil": (["நாய்"], ["ஒரு நாய்."], ["நாய்கள்", "குநாய்"]),
    "telugu": (["గాడిద"], ["గాడిద!"], ["గాడిదలు"]),
    "amharic": (["አህያ"], ["አህያ።", "ይህ አህያ ነው"], ["አህያዎች", "የአህያ"]),
    "korean": (
        ["바보", "자위", "새끼"],
        ["바보!", "바보는", "바보야", "바보입니다", "바보들이", "그 바보를", "바본데", "casino바보"],
        ["바보상자", "자위대는", "울바보", "바봉", "여자위", "새끼손가락"],
    ),
    "katakana": (
        ["チンコ", "レイプ", "ハゲ"],
        ["チンコ", "彼がハゲだ", "ハゲの人", "ﾁﾝｺ"],
        ["パチンコ", "ドレイプ", "ハゲタカ", "ハケ", "バチンコ", "ハケ\u3099タカ"],
    ),
    "hiragana": (["ばか"], ["あのばかは", "は\u3099か"], ["ばが", "はか", "ばか\u3099"]),
    "chinese": (["毒品"], ["买毒品吗", "毒 品", "毒*品"], ["毒药品", "品毒"]),
    "mixed": (["大麻oil"], ["买大麻oil吗", "大麻 oil"], ["大麻oils"]),
    "thai": (["หมา"], ["หมา", "ไอหมาบ้า", "หมาๆ"], ["หม่า", "หมี"]),
    "thai that ends with a consonant": (["กก"], ["กก", "ในกกนี้"], ["กก็", "กกี", "กก่"]),
    "lao": (["ໝາ"], ["ໂຕໝາໃຫຍ່"], ["ໝີ"]),
    "khmer": (["ឆ្កែ"], ["ឆ្កែ", "មានឆ្កែធំ"], ["ឆ្កៃ"]),
    "myanmar": (["ခွေး"], ["ခွေး", "ဒီခွေးက"], ["ခွေ", "ခွေးွ"]),
    "tibetan": (["ཁྱི"], ["ཁྱི་", "ང་ཁྱི་"], ["ཁྱིམ་"]),
}


@pytest.mark.parametrize("script", WORDS)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_each_script_has_its_borders(table_of, script, form):
    words, hit, clean = WORDS[script]
    table = table_of({"a": words})
    for text in hit:
        out, hits = filter_text(table, unicodedata.normalize(form, text))
        assert hits, text
        assert "*" in out
    for text in clean:
        normal = unicodedata.normalize(form, text)
        assert filter_text(table, normal) == (normal, []), text


@pytest.mark.parametrize("script", WORDS)
def test_a_scan_of_whole_texts_sees_the_same_borders(table_of, script):
    words, hit, clean = WORDS[script]
    table = table_of({"a": words})
    texts = [unicodedata.normalize(form, text) for form in ("NFC", "NFD") for text in (*hit, *clean)]
    assert TextScanner(table).scan_all(texts) == [filter_text(table, text) for text in texts]


@pytest.mark.parametrize(
    ("word", "hit", "clean"),
    [
        ("cặc", ["cặc", "CẶC", "c\u0103\u0323c", "ca\u0323\u0306c"], ["các", "cac", "cạc", "căc"]),
        ("ano", ["ano", "anó", "ANO", "ăno"], ["año", "AÑO", "an\u0303o"]),
        ("sik", ["sik", "SIK", "sík"], ["sık"]),
        ("cac", ["cac", "cặc"], ["các"]),
        ("đụ", ["đụ", "Đụ"], ["du", "dụ", "đu"]),
        ("kød", ["kød", "KØD"], ["kod", "köd"]),
        ("хуй", ["хуй", "ХУЙ", "хуи\u0306"], ["хуи"]),
        ("ёрш", ["ёрш", "ерш"], []),
        ("sık", ["sık"], ["sik"]),
        ("İt", ["it", "İt", "IT"], []),
        ("Scheiße", ["scheisse", "SCHEISSE", "scheiße", "SCHEIẞE"], ["scheie"]),
        ("fix", ["ﬁx", "FIX"], []),
        ("şut", ["şut", "șut"], ["sut"]),
        ("احمق", ["أحمق", "احمق", "أَحْمَق", "احـــمق", "ﺍﺣﻤﻖ"], []),
        ("کتک", ["کتک", "كتك"], []),
        ("ガス", ["ガス", "ｶﾞｽ", "カ\u3099ス"], ["カス"]),
        ("カス", ["カス", "ｶｽ"], ["ガス", "ｶﾞｽ"]),
        ("바보", ["바보", "\u1107\u1161\u1107\u1169", "ㅂㅏㅂㅗ"], ["바브"]),
        ("ज़रा", ["ज़रा", "ज\u093cरा"], ["जरा"]),
        ("œuf", ["oeuf", "œuf", "ŒUF"], []),
    ],
)
def test_an_accent_of_the_list_must_be_in_the_text(table_of, word, hit, clean):
    table = table_of({"a": [word]})
    assert [text for text in hit if not filter_text(table, text)[1]] == []
    assert [text for text in clean if filter_text(table, text)[1]] == []


def test_a_category_may_ignore_all_accents_or_none(table_of):
    ignored = {"a": Category("a", folding=Folding(list_accents=False))}
    exact = {"a": Category("a", folding=Folding(marks=False))}
    assert filter_text(table_of({"a": ["cặc"]}, (), ignored), "cặc các cac")[0] == "*** *** ***"
    assert filter_text(table_of({"a": ["cặc"]}, (), exact), "cặc các cac")[0] == "*** các cac"


def test_a_mark_behind_a_masked_word_goes_with_it(table_of):
    table = table_of({"a": ["ano"]})
    for pieces in (["ano\u0301 x"], list("ano\u0301 x")):
        assert "".join(pushed(table, pieces)[0]) == "**** x"


ALPHABETS = {
    "accents": "ae\u00e1\u00e9\u1eb7\u0323\u0306\u0301n \u200b",
    "strokes": "do\u0111\u00f8\u0131i\u0130 -",
    "kana": "かがカガバパー\u3099\u309aﾊﾟア 中",
    "hangul": "바보봉는은\u1102\u11ab들 a1",
    "thai": "กมา\u0e31\u0e48 ๆa",
    "arabic": "كلباوه ش\u064e\u0640",
    "devanagari": "कगध\u093eज\u093c\u095b ।",
    "mixed scripts": "аa бb中バ바ก1\u0301 ",
}


@pytest.mark.parametrize("script", ALPHABETS)
@thorough
@given(data=st.data())
def test_streams_in_every_script_give_what_the_oracle_says_however_they_are_cut(table_of, script, data):
    letters = ALPHABETS[script]
    usable = st.text(letters, min_size=1, max_size=4).filter(lambda text: normaliser(Folding()).word(text))
    options = {"whole_words": data.draw(st.booleans()), "repeats": data.draw(st.booleans())}
    lists = (
        {"first": data.draw(st.lists(usable, min_size=1, max_size=4, unique=True))},
        data.draw(st.lists(usable, max_size=1)),
        {"first": Category("first", **options)},
    )
    table = table_of(*lists)
    for text in data.draw(st.lists(st.text(letters, max_size=12), min_size=3, max_size=6)):
        expected = oracle_text(text, *lists)
        cuts = data.draw(st.lists(st.integers(0, 12), max_size=4))
        for pieces in (cut(text, cuts), list(text), [text]):
            assert "".join(pushed(table, pieces)[0]) == expected
        assert TextScanner(table).scan_all([text])[0][0] == expected
        out, stream = "", WordFilter(table)
        for character in text:
            out += stream.push(character)
            assert expected.startswith(out)


@thorough
@given(data=st.data())
def test_composed_and_decomposed_texts_have_the_same_hits(table_of, data):
    letters = "".join(ALPHABETS.values())
    words = st.text(letters, min_size=1, max_size=4).filter(lambda text: normaliser(Folding()).word(text))
    chosen = data.draw(st.lists(words, min_size=1, max_size=4, unique=True))
    table = table_of({"a": chosen}, max_gap=64)
    for text in data.draw(st.lists(st.text(letters + "".join(chosen), max_size=14), min_size=4, max_size=6)):
        composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
        assert hidden(table, composed) == hidden(table, decomposed)


def hidden(table: WordTable, text: str) -> list[str]:
    """The texts of all hits, canonically decomposed."""
    return sorted(unicodedata.normalize("NFD", text[hit.start : hit.end]) for hit in filter_text(table, text)[1])


def test_max_gap_bounds_what_stands_between_two_letters(table_of):
    for marks in itertools.count(MAX_GAP, 1):
        text = "a" + "\u0301" * marks + "b"
        assert bool(filter_text(table_of({"a": ["ab"]}), text)[1]) == (marks <= MAX_GAP)
        if marks > MAX_GAP:
            break
