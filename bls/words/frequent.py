"""Frequent words that folding would take for a listed one: "año" for "ano". They stay untouched.

Only the compiler of word lists and its checks read them: data/frequent.txt, made by scripts/build_frequent_words.py.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import NamedTuple

from bls.words.normalise import DATA, Folding, Normaliser, normaliser, spellings


class Frequent(NamedTuple):
    """A frequent word, and the codes of the languages in which it is one."""

    text: str
    languages: str


def with_more_accents(symbols: str, folded: Normaliser) -> list[Frequent]:
    """The frequent words that are found where a word of these symbols is listed, for marks that it doesn't have."""
    if not (folded.folding.marks and folded.folding.list_accents):
        return []
    found = _by_letters().get(_letters(symbols, folded), ())
    return [word for word in found if (other := folded.word(word.text)) != symbols and _is_within(symbols, other)]


def equal_when_folded(text: str, folding: Folding) -> list[Frequent]:
    """Frequent words that are the same as a listed one once accents or look-alike letters don't count."""
    folded = normaliser(folding)
    forms = spellings(text, folded)
    same = {word for form in forms for word in _by_letters().get(_letters(form, folded), ())}
    return sorted(word for word in same if word.text != text.lower() and forms & spellings(word.text, folded))


def _is_within(symbols: str, other: str) -> bool:
    """Whether all of `symbols` come in `other`, in this order."""
    rest = iter(other)
    return all(symbol in rest for symbol in symbols)


def _letters(symbols: str, folded: Normaliser) -> str:
    return "".join(symbol for symbol in symbols if not folded.is_mark(symbol))


@cache
def _by_letters() -> dict[str, tuple[Frequent, ...]]:
    folded = normaliser(Folding())
    words: defaultdict[str, set[Frequent]] = defaultdict(set)
    for line in (DATA / "frequent.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            word = Frequent(*line.split(" "))
            for form in spellings(word.text, folded):
                words[_letters(form, folded)].add(word)
    return {letters: tuple(sorted(found)) for letters, found in words.items()}
