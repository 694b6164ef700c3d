"""What `scripts/words check` says of words that can be used and are probably not meant so."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bls.words.frequent import equal_when_folded
from bls.words.normalise import SEPARATOR, normaliser

if TYPE_CHECKING:
    from bls.words.lists import Category, Word, WordLists

_MOST_DIGITS = 2
_NAMED = 3  # frequent words that one message names
_INSIDE = set(" -'_./\u2019\u00b7")  # separators that words have, and that a space of a list stands for


def warnings_of(lists: WordLists) -> Iterator[tuple[Word, str]]:
    """Each word with a doubt, in the order of the lists."""
    for name, words in lists.deny.items():
        for word in words:
            for message in _doubts(word, lists.categories[name]):
                yield word, message


def _doubts(word: Word, category: Category) -> Iterator[str]:
    folded = normaliser(category.folding)
    symbols = folded.word(word.text)
    letters = "".join(symbol for symbol in symbols if not folded.is_mark(symbol))
    lost = {sign for sign in word.text if folded.of(sign).kind == SEPARATOR} - _INSIDE
    if len(unicodedata.normalize("NFC", letters)) == 1:
        yield f"{word.text!r} is one letter to the filter, {letters!r}, and found wherever that stands"
    elif letters.isdigit() and len(letters) <= _MOST_DIGITS:
        yield f"{word.text!r} is the number {letters} to the filter, which many texts hold"
    elif lost:
        yield f"{word.text!r} is compared as {symbols!r}: {' '.join(sorted(lost))} only separate words"
    same = [] if word.open_left or word.open_right else equal_when_folded(word.text, category.folding)
    if same:
        named = ", ".join(f"{each.text} ({each.languages})" for each in same[:_NAMED])
        yield f"{word.text!r} is the same as a frequent word once accents and look-alikes are folded: {named}"
