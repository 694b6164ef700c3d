"""Phone numbers as they are written at home: the texts are in tests/data/national_numbers.tsv."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.paths import ROOT
from bls.safety.mask import personal_spans
from bls.safety.settings import MASK, PersonalData
from bls.words.pii import PiiMatcher
from bls.words.table import Treatment
from tests.word_streams import EXAMPLES, cut

KINDS = ["phone", "national_phone"]
LINES = (ROOT / "tests" / "data" / "national_numbers.tsv").read_text(encoding="utf-8").splitlines()
ROWS = [line.split("\t") for line in LINES if not line.startswith("#")]


def phones(text: str, kinds: list[str]) -> set[str]:
    return {text[span.start : span.end] for span in personal_spans(text, kinds, {})}


def share_found(half: str, kinds: list[str]) -> float:
    found = [phones(text, kinds) == {number} for kind, own, text, number, _ in ROWS if (kind, own) == ("phone", half)]
    assert len(found) >= 80
    return sum(found) / len(found)


def innocents_hit(half: str, kinds: list[str]) -> int:
    return sum(bool(phones(text, kinds)) for kind, own, text, _, _ in ROWS if (kind, own) == ("none", half))


@pytest.mark.parametrize("half", ["fitted", "held out", "look alike"])
def test_no_innocent_number_is_a_phone_by_default(half):
    assert innocents_hit(half, ["phone"]) == 0


def test_docs_have_the_figures_of_the_held_out_half():
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    for name, kinds in (("`phone`", ["phone"]), ("`phone` and `national_phone`", KINDS)):
        recall, wrong = share_found("held out", kinds), innocents_hit("held out", kinds)
        found = round(recall * 84)
        row = [found, f"{recall:.2f}", wrong, innocents_hit("look alike", kinds), f"{found / (found + wrong):.2f}"]
        assert f"| {name} | {' | '.join(map(str, row))} |" in page


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Tel. 030 901820 oder 12", {"030 901820"}),
        ("(02) 9374 4000", {"(02) 9374 4000"}),
        ("Tel: 020 7946 0018, room 3", {"020 7946 0018"}),
        ("appelez le 01 42 68 53 00.", {"01 42 68 53 00"}),
        ("Tél. 01 42 68 53 00", {"01 42 68 53 00"}),
        ("请打电话 (02) 9374 4000 谢谢", {"(02) 9374 4000"}),
        ("ISBN 0-306-40615-2", set()),
        ("Steuernummer 021/815/08150", set()),
    ],
)
def test_a_national_number_is_found_where_the_writer_shows_that_it_is_one(text, found):
    assert phones(text, ["phone"]) == found


@pytest.mark.parametrize("text", ["020 7946 0018", "01 42 68 53 00"])
def test_the_grouping_alone_is_enough_only_where_that_was_asked_for(text):
    assert PersonalData().on_hit.keys().isdisjoint({"national_phone"})
    assert PersonalData(on_hit={"national_phone": MASK})
    assert (phones(text, ["phone"]), phones(text, KINDS)) == (set(), {text})


FRAGMENTS = (
    [text for _, _, text, _, _ in ROWS] + [number for *_, number, _ in ROWS if number] + ["tel ", "(0", "0", "/"]
)


@settings(max_examples=EXAMPLES * 3, deadline=None)
@given(
    st.lists(st.one_of(st.text("01237 -/.()tel\u200b法", max_size=6), st.sampled_from(FRAGMENTS)), max_size=5),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_what_is_found_does_not_depend_on_how_the_text_is_cut(parts, where):
    text = "".join(parts)

    def found(pieces):
        matcher = PiiMatcher({"phone": 0, "national_phone": 1}, [Treatment(kind, "mask", "") for kind in KINDS])
        return sorted([match for piece in pieces for match in matcher.feed(piece)] + matcher.finish())

    whole = found([text])
    assert found(list(text)) == whole
    assert found(cut(text, where)) == whole
    spans = [(span.start, span.end, span.name) for span in personal_spans(text, KINDS, {})]
    assert sorted(spans) == sorted((start, end, KINDS[category]) for start, end, category, _ in whole)
