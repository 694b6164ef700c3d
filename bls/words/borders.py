"""Where a listed word may begin and end, by its first and last symbols; for the compiler of word lists.

The classes come from Unicode (scripts/build_borders.py). Two letters of one class join: no word ends between them.
"""

from __future__ import annotations

from functools import cache

from bls.words import affixes
from bls.words.candidates import BORDER, LETTER_END, NUMBER, TAIL
from bls.words.cjk import is_cjk
from bls.words.normalise import LETTER, Folding, border_classes, normaliser
from bls.words.trie import CLASS_BITS, EXTENDS, HANGUL, IS_MARK, KATAKANA, WORD

_EVERYTHING = normaliser(Folding())
_FEWEST_LETTERS = 4
_HIRAGANA = ("\u3041", "\u309f")


@cache
def joins_of(symbol: str) -> int:
    """The class of a symbol, and EXTENDS or IS_MARK."""
    point = ord(symbol)
    if _EVERYTHING.is_mark(symbol):
        return IS_MARK
    classes = border_classes()
    named = {"word": WORD, "hangul": HANGUL, "katakana": KATAKANA}
    joins = next((joins for name, joins in named.items() if point in classes[name]), 0)
    return joins | (EXTENDS if point in classes["extends"] else 0)


def has_left_border(symbols: str) -> bool:
    """Whether a letter before the first one would make another word of it."""
    return joins_of(symbols[0]) & CLASS_BITS > 0


def end_needs(symbols: str, *, whole_words: bool) -> int:
    """What must hold behind a word, as bits of bls.words.candidates."""
    last = last_letter(symbols)
    has_class = joins_of(last) & CLASS_BITS > 0
    needs = BORDER if has_class and whole_words else 0
    if needs and affixes.after(last):
        needs |= TAIL
    if needs and last.isascii() and last.isalpha() and any(map(is_cjk, symbols)):
        needs |= NUMBER  # an account's number in an advertisement
    return needs | (LETTER_END if _may_be_extended(last) else 0)


def last_letter(symbols: str) -> str:
    """The last symbol that is no mark."""
    return next(symbol for symbol in reversed(symbols) if joins_of(symbol) != IS_MARK)


def _may_be_extended(symbol: str) -> bool:
    """Whether what follows may be a part of this letter: a tone of a Thai one, the voicing of a kana, a final jamo."""
    joins = joins_of(symbol)
    if joins & CLASS_BITS:
        return joins & CLASS_BITS != WORD
    if _HIRAGANA[0] <= symbol <= _HIRAGANA[1] or joins & EXTENDS:
        return True
    return not is_cjk(symbol) and _EVERYTHING.of(symbol).kind == LETTER


def may_be_spelt_with_digits(symbols: str) -> bool:
    """Whether a word is long enough that digits in it are no model number: a55 is a phone."""
    return sum(symbol.isascii() and symbol.isalpha() for symbol in symbols) >= _FEWEST_LETTERS


def tails(words: list[str]) -> list[str]:
    """All that may stand behind any of these words, as symbols."""
    ends = set(map(last_letter, words))
    return sorted({tail for end in ends for tail in affixes.after(end)})
