"""engines/worker/stop_words.py against the plain definition."""

from hypothesis import given
from hypothesis import strategies as st

from engines.worker.stop_words import StopWords

TOKENS = st.integers(0, 2)
WORDS = st.lists(st.lists(TOKENS, min_size=1, max_size=4).map(tuple), max_size=4)


def first_end(ids, words):
    """How many ids there are up to the first end of a word, by definition."""
    for count in range(1, len(ids) + 1):
        if any(tuple(ids[:count][-len(word) :]) == word for word in words):
            return count
    return None


@given(words=WORDS, chunks=st.lists(st.lists(TOKENS, max_size=5), max_size=6))
def test_a_word_is_found_where_it_first_ends_however_the_ids_arrive(words, chunks):
    matcher = StopWords(words)
    seen = 0
    for chunk in chunks:
        kept = matcher.kept(chunk)
        if kept is not None:
            assert first_end([token for part in chunks for token in part], words) == seen + kept
            return
        seen += len(chunk)
    assert first_end([token for part in chunks for token in part], words) is None
