import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.paths import ROOT
from bls.safety.mask import personal_spans
from bls.words import pii_checks, pii_kinds
from bls.words.candidates import Match
from bls.words.compiler import compile_lists
from bls.words.lists import Category, WordLists
from bls.words.pii import PiiMatcher
from bls.words.stream_filter import WordFilter, filter_text
from bls.words.table import Treatment, WordTable
from tests.word_streams import EXAMPLES, cut, lists_of

KINDS = list(pii_kinds.KINDS)
MASKED = [Treatment(kind, "mask", "") for kind in KINDS]
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

EXAMPLES_OF = {
    "email": ["a.b+c@example.com", "x_1@mail.example.co.uk", "1@2.io"],
    "phone": ["13812345678", "138 1234 5678", "138-1234-5678", "+86 138-1234-5678", "008613812345678", "(010) 12345678",
              "0755-12345678", "+44 20 7946 0958", "+1-202-555-0143", "(202) 555-0143", "202-555-0143",
              "+33 1 23 45 67 89"],
    "cn_id": ["11010519491231002X", "11010519491231002x", "110105 19491231 002X", "440308199901010012"],
    "bank_card": ["4111111111111111", "4111 1111 1111 1111", "6222-0212-3456-7894", "3782 822463 10005",
                  "6222021234567890128"],
    "api_key": ["sk-" + "aB3_" * 6, "ghp_" + "a1B2" * 9, "AKIA" + "ABCD1234" * 2, "AIza" + "aB3-_" * 7,
                "xoxb-" + "1234567890-abcdefghij", "hf_" + "aBcDeF" * 6, "glpat-" + "a1b2c" * 4,
                "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"],
}  # fmt: skip
INNOCENT = [
    "in 2024", "3.14159265358979", "1000000", "12345678", "page 215 of 1200", "2024-11-29", "2024-11-29 10:15:00",
    "4111111111111112", "11010519491231002Z", "110105194912310021", "11010519490231002X", "abc13812345678",
    "13812345678901234567890", "12812345678", "a@b", "@user", "user@", "x @ y.com", "sk-short", "task-force",
    "ghp_", "AKIA1234", "1 2 3 4 5 6 7 8 9 10", "127.0.0.1", "0000000000000000", "ISBN 978-3-16-148410-0",
]  # fmt: skip


def found_in(pieces: list[str], treatments=MASKED) -> list[tuple[str, int, int]]:
    matcher = PiiMatcher(NUMBERS, treatments)
    decided = [match for piece in pieces for match in matcher.feed(piece)] + matcher.finish()
    return sorted((KINDS[category], start, end) for start, end, category, _ in decided)


def every_example() -> Iterator[tuple[str, str]]:
    for kind, texts in EXAMPLES_OF.items():
        yield from ((kind, text) for text in texts)


@pytest.mark.parametrize(("kind", "text"), list(every_example()))
@pytest.mark.parametrize(("before", "after"), [("", ""), ("see ", " now"), ("联系", "谢谢"), ("(", ")."), (": ", ", ")])
def test_each_kind_is_found_wherever_it_stands(kind, text, before, after):
    found = found_in(list(before + text + after))
    assert (kind, len(before), len(before) + len(text)) in found


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_none_of_them_passes(text):
    assert found_in([text]) == []


def test_full_width_digits_and_invisible_characters_are_no_disguise():
    assert found_in(["\uff11\uff13812345678"]) == [("phone", 0, 11)]
    assert found_in(["1\u200b38\u00ad12345678 "]) == [("phone", 0, 13)]
    assert found_in(["a@\u2060b\uff0ecom"]) == [("email", 0, 8)]


def test_a_long_run_of_invisible_characters_ends_a_number_so_that_what_is_held_is_bounded():
    matcher = PiiMatcher(NUMBERS, MASKED)
    matcher.feed("138" + "\u200b" * 1000)
    assert matcher.undecided(0) == (1003, 1003)


def test_an_address_behind_a_long_run_of_letters_is_still_found():
    (found,) = found_in(["a" * 500 + "@b.com "])
    assert found == ("email", 500 - 64, 506)


def test_a_number_behind_other_numbers_is_found():
    assert ("phone", 8, 19) in found_in(["1 2 300 13812345678 9"])
    assert ("bank_card", 5, 24) in found_in(["2024 4111 1111 1111 1111"])


ALPHABET = "0138 -+(@.abskX\u200b\uff11法"
FRAGMENTS = [text for _, text in every_example()] + ["a@b.c", "138", "sk-", " ", "法"]


@settings(max_examples=EXAMPLES * 3, deadline=None)
@given(
    st.lists(st.one_of(st.text(ALPHABET, max_size=6), st.sampled_from(FRAGMENTS)), max_size=5).map("".join),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_what_is_found_does_not_depend_on_how_the_text_is_cut(text, where):
    whole = found_in([text])
    assert found_in(list(text)) == whole
    assert found_in(cut(text, where)) == whole


@settings(max_examples=EXAMPLES * 3, deadline=None)
@given(st.lists(st.one_of(st.text("0138 -a.@b", max_size=6), st.sampled_from(FRAGMENTS)), max_size=5).map("".join))
def test_addresses_and_mobile_numbers_are_those_of_a_plain_search(text):
    """Another way to write two of the kinds, over the whole text."""
    local, label = r"[a-z0-9](?:[a-z0-9_%+-]|\.(?!\.)){0,63}", r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
    email = re.compile(rf"{local}@(?:{label}\.)+[a-z]{{2,24}}(?![a-z0-9])", re.I | re.A)
    found = found_in(list(text))
    visible = text.replace("\u200b", "")
    if visible == text:
        assert [(s, e) for kind, s, e in found if kind == "email"] == [m.span() for m in email.finditer(text)]
        number = r"(?:(?:\+|00)86[ -]?)?1[3-9]\d[ -]?\d{4}[ -]?\d{4}"
        mobile = re.compile(rf"(?<![0-9A-Za-z+])(?<![0-9]\.){number}(?![0-9A-Za-z])")  # not behind a decimal point
        phones = {at for kind, s, e in found if kind == "phone" for at in range(s, e)}
        for match in mobile.finditer(text):
            assert phones & set(range(*match.span()))


@settings(max_examples=EXAMPLES * 2, deadline=None)
@given(st.lists(st.one_of(st.text(ALPHABET, max_size=6), st.sampled_from(FRAGMENTS)), max_size=4).map("".join))
def test_nothing_that_will_be_found_lies_left_of_what_is_undecided(text):
    whole = found_in([text])
    matcher = PiiMatcher(NUMBERS, MASKED)
    so_far: list[Match] = []
    for character in text:
        so_far += matcher.feed(character)
        hide, _ = matcher.undecided(0)
        known = {(KINDS[category], start, end) for start, end, category, _ in so_far}
        assert all(start >= hide for kind, start, end in whole if (kind, start, end) not in known)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_is_bounded_by_the_longest_pattern(kind):
    matcher = PiiMatcher({kind: 0}, [Treatment(kind, "mask", "")])
    for character in itertools.islice(itertools.cycle("eyJa0-@1.sk"), 3000):
        matcher.feed(character)
        assert matcher.position - matcher.undecided(0)[0] <= pii_kinds.longest(kind)


def test_check_digits():
    assert pii_checks.bank_card("4111 1111 1111 1111", "")
    assert not pii_checks.bank_card("4111 1111 1111 1112", "")
    assert pii_checks.chinese_id("11010519491231002X", "")
    assert not pii_checks.chinese_id("110105194912310021", "")


@pytest.fixture
def table_of(tmp_path):
    def compiled(pii_actions: dict[str, tuple[str, str]], words=("法轮",)) -> WordTable:
        lists: WordLists = lists_of({"words": list(words)}, [], {"words": Category("words")})
        lists.pii = {kind: Category(kind, action, text) for kind, (action, text) in pii_actions.items()}
        compile_lists(lists, tmp_path / "compiled")
        return WordTable(tmp_path / "compiled")

    return compiled


def test_one_filter_does_words_and_personal_data(table_of):
    table = table_of({"email": ("replace", "<mail>"), "phone": ("mask", ""), "api_key": ("monitor", "")})
    text = "法轮 a@b.com 13812345678 sk-aB3daB3daB3daB3daB3daB3d!"
    out, hits = filter_text(table, text)
    assert out == "** <mail> *********** sk-aB3daB3daB3daB3daB3daB3d!"
    assert [hit.category for hit in hits] == ["words", "email", "phone", "api_key"]


def test_personal_data_is_held_until_it_is_known(table_of):
    stream = WordFilter(table_of({"email": ("mask", "")}))
    pieces = ["Hi me", "@x", ".org", " now", " "]
    assert [stream.push(piece) for piece in pieces] == ["Hi ", "", "", "******** ", "now "]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.sampled_from(["13812345678", "a@b.com", "法轮", "法", " ", "1", "x"]), max_size=6).map("".join),
    st.lists(st.integers(0, 100), max_size=5),
)
def test_terminating_data_ends_the_stream_at_the_same_place_however_the_text_is_cut(tmp_path_factory, text, where):
    lists = lists_of({"words": ["法轮", "x法"]}, [], {"words": Category("words", "replace", "<w>")})
    lists.pii = {"phone": Category("phone", "terminate", "END"), "email": Category("email", "mask")}
    check_that_cuts_make_no_difference(lists, tmp_path_factory.getbasetemp() / "terminating", text, where)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.sampled_from(["13812345678", "a@b.com", "halt", "法轮", " ", "1", "x"]), max_size=6).map("".join),
    st.lists(st.integers(0, 100), max_size=5),
)
def test_personal_data_behind_a_terminating_word_changes_nothing_however_the_text_is_cut(tmp_path_factory, text, where):
    lists = lists_of({"words": ["法轮", "halt"]}, [], {"words": Category("words", "terminate", "END")})
    lists.pii = {"phone": Category("phone", "mask"), "email": Category("email", "replace", "<mail>")}
    check_that_cuts_make_no_difference(lists, tmp_path_factory.getbasetemp() / "terminating_word", text, where)


def check_that_cuts_make_no_difference(lists, path, text, where):
    if not path.exists():
        compile_lists(lists, path)
    table = WordTable(path)
    results = []
    for pieces in (list(text), [text], cut(text, where)):
        stream = WordFilter(table)
        results.append(("".join([*map(stream.push, pieces), stream.finish()]), stream.hits, stream.terminated))
    assert results[0] == results[1] == results[2]


def test_nearly_all_numbers_of_standards_are_told_from_other_numbers():
    """The set and its sources are in tests/data/personal_numbers.tsv; docs/words.md has the table."""
    lines = (ROOT / "tests" / "data" / "personal_numbers.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert len(rows) >= 400
    found = {text: {span.name for span in personal_spans(text, KINDS, {})} for _, text, _ in rows}
    for wanted in {*KINDS} - {"national_phone"}:  # has a set of its own
        right = sum(wanted in found[text] for kind, text, _ in rows if kind == wanted)
        wrong = sum(wanted in found[text] for kind, text, _ in rows if kind != wanted)
        assert right >= 0.95 * sum(kind == wanted for kind, _, _ in rows), wanted
        assert wrong <= 0.02 * right, wanted


@pytest.mark.parametrize(
    ("text", "phones"),
    [
        ("call +44 20 7946 0958 2 times", ["+44 20 7946 0958"]),
        ("my cell is 415 555 2671", ["415 555 2671"]),
        ("415 555 2671", []),
        ("+1.4142135623", []),
        ("0.13812345678", []),
        ("price 13812345678", ["13812345678"]),
    ],
)
def test_a_number_is_a_phone_only_where_it_is_written_like_one(text, phones):
    for pieces in ([text], list(text)):
        assert [text[start:end] for kind, start, end in found_in(pieces) if kind == "phone"] == phones


@pytest.mark.parametrize("behind", ["", "...", "...thanks", "..x@y", ".-a", ". Thanks", ".-"])
def test_an_address_is_found_whatever_dots_follow_it(behind):
    assert ("email", 8, 21) in found_in([f"Mail to a@example.org{behind}"])
