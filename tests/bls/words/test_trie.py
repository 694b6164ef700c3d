import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.words import borders
from bls.words import trie as word_trie
from bls.words.trie import ALLOW_HERE, ANYWHERE, AT_WORD_START, ENDING_SHIFT, HIDE_BELOW, HIDE_HERE, Alphabet

SYMBOLS = "abc1 +法轮功好"
words = st.text(SYMBOLS, min_size=1, max_size=5)


def built(entries: dict[tuple[str, int], tuple[int, int]]) -> tuple[word_trie.Trie, Alphabet]:
    """The trie of (word, root) -> (ending, bits)."""
    texts = [word for word, _ in entries]
    alphabet = Alphabet.of(texts, borders.joins_of)
    columns = zip(*[(root, *ending) for (_, root), ending in entries.items()], strict=True)
    return word_trie.build(texts, *(np.array(column, np.int32) for column in columns), alphabet), alphabet


def node_of(trie: word_trie.Trie, alphabet: Alphabet, word: str, root: int) -> int | None:
    node = root
    for symbol in word:
        slot = int(trie.base[node]) + alphabet.codes.get(symbol, 0)
        if trie.check[slot] != node:
            return None
        node = slot
    return node


@settings(deadline=None)
@given(
    st.dictionaries(
        st.tuples(words, st.sampled_from([ANYWHERE, AT_WORD_START])),
        st.tuples(st.integers(1, 9), st.sampled_from([ALLOW_HERE, HIDE_HERE])),
        min_size=1,
        max_size=30,
    ),
    st.lists(words, max_size=10),
)
def test_a_trie_holds_its_words_and_no_others(entries, others):
    trie, alphabet = built(entries)
    for (word, root), (ending, bits) in entries.items():
        node = node_of(trie, alphabet, word, root)
        assert node is not None
        assert trie.info[node] >> ENDING_SHIFT == ending
        assert trie.info[node] & (ALLOW_HERE | HIDE_HERE) == bits
    prefixes = {(word[:size], root) for word, root in entries for size in range(1, len(word) + 1)}
    for word in others:
        for root in (ANYWHERE, AT_WORD_START):
            node = node_of(trie, alphabet, word, root)
            assert (node is not None) == ((word, root) in prefixes)
            if node is not None and (word, root) not in entries:
                assert trie.info[node] >> ENDING_SHIFT == 0


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=20, unique=True))
def test_a_node_tells_whether_a_word_that_hides_goes_on_below_it(texts):
    bits = {text: HIDE_HERE if number % 2 else ALLOW_HERE for number, text in enumerate(texts)}
    trie, alphabet = built({(text, ANYWHERE): (1, bits[text]) for text in texts})
    for prefix in {text[:size] for text in texts for size in range(1, len(text) + 1)}:
        node = node_of(trie, alphabet, prefix, ANYWHERE)
        below = any(text != prefix and text.startswith(prefix) and bits[text] == HIDE_HERE for text in texts)
        assert bool(trie.info[node] & HIDE_BELOW) == below


def test_a_large_trie_is_packed_closely():
    random = np.random.default_rng(1)
    symbols = [chr(0x4E00 + at) for at in range(3000)]
    texts = sorted({"".join(symbols[at] for at in random.zipf(1.3, 4) % 3000) for _ in range(5000)})
    trie, alphabet = built({(text, ANYWHERE): (1, HIDE_HERE) for text in texts})
    nodes = len({text[:size] for text in texts for size in range(1, 5)})
    assert len(trie.base) < 2 * nodes + 4 * len(alphabet.codes)
    assert all(node_of(trie, alphabet, text, ANYWHERE) for text in texts)


def test_codes_tell_ascii_words_and_cjk_apart():
    alphabet = Alphabet.of(["a+法", "я轮"], borders.joins_of)
    assert alphabet.codes["9"] == word_trie.LAST_DIGIT < alphabet.codes["z"] < word_trie.SPACE < alphabet.codes["+"]
    assert [alphabet.joins[alphabet.codes[symbol]] for symbol in "zя法+"] == [word_trie.WORD, word_trie.WORD, 0, 0]
    assert max(alphabet.codes["+"], alphabet.codes["я"]) < alphabet.first_cjk <= alphabet.codes["法"]
