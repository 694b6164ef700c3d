from hypothesis import given
from hypothesis import strategies as st

from bls.tokens.stop_words import WordStop

WORDS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=4)
PIECES = st.lists(st.text("abc", max_size=4), max_size=12)


def whole_text(words, text):
    """The oracle: the text before the word that ends first, of two that end together the longer; and that word."""
    ends = [(end, -len(word), word) for word in words for end in range(len(text) + 1) if text[:end].endswith(word)]
    if not ends:
        return text, None
    end, _, word = min(ends)
    return text[: end - len(word)], word


def run(words, pieces):
    stop = WordStop(words)
    shown = [stop.push(piece) for piece in pieces]
    return "".join(shown) + stop.finish(), stop.hit


@given(WORDS, PIECES)
def test_the_result_depends_on_the_text_and_not_on_how_it_was_cut(words, pieces):
    assert run(words, pieces) == whole_text(words, "".join(pieces))


@given(WORDS, PIECES)
def test_no_part_of_a_word_is_ever_out_and_nothing_is_held_that_can_not_become_one(words, pieces):
    stop = WordStop(words)
    shown = text = ""
    for piece in pieces:
        shown += stop.push(piece)
        text += piece
        if stop.hit is not None:
            return
        held = text[len(shown) :]
        tails = [text[start:] for start in range(len(text))]
        longest = max(
            (tail for tail in tails if any(w != tail and w.startswith(tail) for w in words)), key=len, default=""
        )
        assert held == longest


def test_a_word_that_starts_inside_a_failed_match_is_found():
    assert run(["aab"], list("aaab")) == ("a", "aab")


def test_nothing_comes_after_the_word():
    stop = WordStop(["END"])
    assert stop.push("so END of") == "so "
    assert stop.push("more") + stop.finish() == ""


def test_no_words_and_empty_words_hold_nothing():
    assert WordStop([]).push("text") == "text"
    assert WordStop([""]).push("text") == "text"
