"""What every character is to the words of one lexicon: the part of the compiled file where matchers look it up.

Blocks of 256 entries, each different block once. An entry is a symbol's code, or flags of bls.words.table; a character
of several symbols has its place in `several`, where their number and codes stand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bls.words import borders, table
from bls.words import trie as word_trie
from bls.words.normalise import (
    HIRAGANA_VOICING,
    INVISIBLE,
    MARK,
    SEPARATOR,
    SOFT,
    VOICED,
    VOICING,
    Folding,
    Normaliser,
    border_classes,
    normaliser,
)
from bls.words.trie import HANGUL, IS_MARK, KATAKANA, WORD, Alphabet, unknown_code

# Full stops of all widths, and what looks like one.
DOTS = ".\u2024\u3002\ufe52\uff0e\uff61"
Int32 = npt.NDArray[np.int32]
_KINDS = {SEPARATOR: table.SEPARATOR, INVISIBLE: table.INVISIBLE, SOFT: table.SOFT, MARK: table.MARK}


def tables(folded: Normaliser, alphabet: Alphabet) -> Mapping[str, Int32]:
    """`pages`, `blocks` and `several` for all of Unicode's 1.1 million points."""
    blank = _without_words(folded.folding)
    entries = blank.entries.copy()
    for symbol, code in alphabet.codes.items():
        places = [*blank.sources.get(symbol, ()), *([ord(symbol)] if folded.of(symbol).symbols == symbol else [])]
        if alphabet.joins[code] & IS_MARK and folded.is_mark(symbol):
            entries[places] = table.MARK | code
        else:
            entries[places] = entries[places] & table.FLAGS | code
    several: list[int] = []
    for character, symbols in blank.several:
        codes = _codes(symbols, alphabet)
        if len(codes) == 1 and codes[0]:
            entries[ord(character)] = codes[0]
        elif codes:
            entries[ord(character)] = table.SEVERAL | len(several)
            several += [len(codes), *codes]
    for voicing in VOICING if folded.of(VOICING[0]).kind == VOICED else "":
        entries[ord(voicing)] = table.VOICED | len(several)
        several += [2, *_voicings(voicing, alphabet)]
    for dot in DOTS if word_trie.DOT in alphabet.codes else "":
        entries[ord(dot)] = table.DOT | alphabet.codes[word_trie.DOT]
    distinct: dict[bytes, int] = {}
    pages = [distinct.setdefault(block.tobytes(), len(distinct)) for block in entries.reshape(-1, 256)]
    blocks = np.frombuffer(b"".join(distinct), np.int32)
    return {"pages": np.array(pages, np.int32), "blocks": blocks, "several": np.array(several, np.int32)}


def _codes(symbols: str, alphabet: Alphabet) -> list[int]:
    """Without the marks of no word; none where no word has any of the symbols."""
    if not any(symbol in alphabet.codes for symbol in symbols):
        return []
    return [
        alphabet.codes.get(symbol, unknown_code(borders.joins_of(symbol)))
        for symbol in symbols
        if symbol in alphabet.codes or borders.joins_of(symbol) != IS_MARK
    ]


def _voicings(voicing: str, alphabet: Alphabet) -> list[int]:
    """The codes of the sign behind katakana and behind hiragana."""
    both = voicing + HIRAGANA_VOICING[VOICING.index(voicing)]
    return [alphabet.codes.get(symbol, unknown_code(borders.joins_of(symbol))) for symbol in both]


class _Blank(NamedTuple):
    """Every character under one folding, before there are words."""

    entries: Int32  # the kinds, and for letters the codes of symbols of no word
    sources: dict[str, npt.NDArray[np.int64]]  # symbol -> the other characters that become it
    several: list[tuple[str, str]]  # characters that become several symbols


@cache
def _without_words(folding: Folding) -> _Blank:
    folded = normaliser(folding)
    entries = _unknown_letters()
    sources: defaultdict[str, list[int]] = defaultdict(list)
    several = []
    for character in sorted(folded.changed):
        kind, symbols = folded.of(character)
        entries[ord(character)] = _KINDS.get(kind, unknown_code(borders.joins_of(symbols[:1] or " ")))
        if len(symbols) == 1 and symbols != character:
            sources[symbols].append(ord(character))
        elif len(symbols) > 1:
            several.append((character, symbols))
    return _Blank(entries, {symbol: np.array(points) for symbol, points in sources.items()}, several)


def _unknown_letters() -> Int32:
    entries = np.zeros(0x110000, np.int32)
    classes = {name: np.array(sorted(points)) for name, points in border_classes().items()}
    joins = np.zeros(0x110000, np.int32)
    for name, bits in (("word", WORD), ("hangul", HANGUL), ("katakana", KATAKANA)):
        joins[classes[name]] = bits
    joins[classes["extends"]] |= 4
    for value in np.unique(joins):
        entries[joins == value] = unknown_code(int(value))
    return entries
