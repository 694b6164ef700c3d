"""Thoughts told apart from answers, however the stream is cut; bls/answer_filter.py too, which looks at both."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.answer_filter import ThinkingCut
from bls.tokens.thinking import CLOSE, OPEN, Part, Thinking, ends_thinking
from bls.words.compiler import compile_folder
from bls.words.table import NewestTable

PARTS = [OPEN, CLOSE, "<", "<th", "ink>", "</", "/think>", "a", "b c", "\n", " ", "你", "<thinker>"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
CUTS = st.lists(st.integers(0, 120), max_size=20)


def whole(text):
    """The oracle, by an expression: the answer and the thought of a whole text."""
    thoughts = re.findall(r"<think>(.*?)(?:</think>|\Z)", text, re.DOTALL)
    answer = re.sub(r"<think>.*?(?:</think>\s*|\Z)", "\0", text, flags=re.DOTALL)
    # Space behind a thought goes, also that between two; and so does half of a tag at the end.
    answer = re.sub(r"\0\s+", "\0", answer).replace("\0", "")
    in_thought = text.rpartition(OPEN)[1] and CLOSE not in text.rpartition(OPEN)[2]
    for size in range(len(OPEN) - 1, 0, -1) if not in_thought else ():
        if text.endswith(OPEN[:size]):
            return answer.removesuffix(OPEN[:size]), "".join(thoughts)
    return answer, "".join(thoughts)


def pieces_of(text, cuts):
    places = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def run(text, cuts):
    thinking = Thinking()
    parts = [part for piece in pieces_of(text, cuts) for part in thinking.push(piece)] + list(thinking.finish())
    return tuple("".join(part.text for part in parts if part.is_thought is thought) for thought in (False, True))


@given(TEXTS, CUTS)
def test_the_result_depends_on_the_text_and_not_on_how_it_was_cut(text, cuts):
    assert run(text, cuts) == run(text, []) == whole(text)


@given(TEXTS, CUTS)
def test_no_part_of_a_tag_and_nothing_thought_is_ever_answer(text, cuts):
    """What is out is at each time what a text that ends there would show."""
    thinking, answer, seen = Thinking(), "", ""
    for piece in pieces_of(text, cuts):
        answer += "".join(part.text for part in thinking.push(piece) if not part.is_thought)
        seen += piece
        assert answer == whole(seen)[0]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nParis.", "Paris."),
        ("<think></think>\n\nParis.", "Paris."),
        ("Paris <thinker> 1 < 2", "Paris <thinker> 1 < 2"),
        ("One <think>two</think> three", "One three"),
        ("<think>never ends", ""),
        ("Paris <thi", "Paris "),
    ],
)
def test_what_a_reader_sees(text, answer):
    assert run(text, [3, 9])[0] == answer


def test_a_prompt_may_end_where_the_model_is_to_think():
    thinking = Thinking()
    thinking.is_open = ends_thinking("<|assistant|><think>\n")
    assert list(thinking.push("Hm.</think>\nParis.")) == [Part("Hm.", is_thought=True, is_last=True), Part("Paris.")]
    assert not ends_thinking("<think>\n\n</think>\n\n")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "deny").mkdir()
    (tmp_path / "deny" / "watched.txt").write_text("rival\n")
    (tmp_path / "deny" / "weapons.txt").write_text("bomb\n")
    (tmp_path / "categories.toml").write_text('[categories.weapons]\naction = "terminate"\ntext = "No."\n')
    compile_folder(tmp_path, tmp_path / "compiled.bin")
    return NewestTable(tmp_path / "compiled.bin").table()


def filtered(table, text, cuts):
    cut = ThinkingCut(table)
    return "".join([*(cut.push(piece) for piece in pieces_of(text, cuts)), cut.finish()]), cut


@pytest.mark.parametrize("cuts", [[], range(60)])
def test_a_listed_word_in_a_thought_counts_and_one_in_the_answer_is_hidden(table, cuts):
    shown, cut = filtered(table, "<think>a rival, a rival</think>\nThe rival it is", cuts)
    assert (shown, cut.totals) == ("The ***** it is", [("watched", "mask", 3)])
    assert list(cut.lines) == ["deny/watched.txt:1"]
    assert filtered(None, "<think>a rival</think>The rival", cuts)[0] == "The rival"


@pytest.mark.parametrize("cuts", [[], range(60)])
@pytest.mark.parametrize(
    "text", ["So <think>a bomb, then</think> fine", "So <think>hm</think>a bomb it is", "So <think>a bomb"]
)
def test_a_word_that_ends_answers_ends_them_in_a_thought_too(table, text, cuts):
    shown, cut = filtered(table, text, cuts)
    assert (cut.terminated, cut.may_terminate) == (True, True)
    assert shown.endswith("No.") and "bomb" not in shown and "fine" not in shown
