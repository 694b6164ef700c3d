"""A quick look at many texts at once, by numpy: which places of them need the real matcher.

It follows every path of the trie to its first word, for all positions at once. It is too suspicious rather than too
exact: what needs a closer look, such as right boundaries, is only a reason for one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bls.words.candidates import BORDER, NUMBER, TAIL
from bls.words.table import ALLOW, DOT, INVISIBLE, MARK, SEPARATOR, SEVERAL, SOFT, VOICED, Lexicon
from bls.words.trie import (
    ANYWHERE,
    AT_WORD_START,
    DENY_HERE,
    ENDING_SHIFT,
    FIRST_CODE,
    IS_MARK,
    LAST_DIGIT,
    MARK_CHILD,
    SPACE_CHILD,
)

Int32 = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ENDS = BORDER | TAIL | NUMBER
_STOPS = DENY_HERE | SPACE_CHILD | MARK_CHILD  # a path that comes so far needs a closer look, or nearly
_DIGITS = LAST_DIGIT + 1 - FIRST_CODE
# In place of the code of a symbol: what is skipped, can't be judged, is not seen, or is a sign that may stand for a
# letter and else is skipped.
_SKIPPED, _UNUSUAL, _UNSEEN, _SIGN = -1, -2, -3, -4
_TWO_PLANES = 0x20000  # with the emoji and mathematical letters; beyond are rare Chinese characters


# Characters `start` to `end` (exclusive) that may have to be fewer, or none, for a text to hold a word: a run of equal
# letters, with how many of it may be meant at most, or (0) a digit between CJK letters. All that can be in one word
# with it lies between the last two.
Spot = tuple[int, int, int, int, int]


class Found(NamedTuple):
    suspects: Places  # a word may begin or go on here, or a quick look can't tell
    spots: Places  # of shape (5, spots), each column a Spot


class QuickLook:
    """One lexicon's tables, as numpy arrays over the mapped file."""

    def __init__(self, lexicon: Lexicon, longest: int) -> None:
        """`longest` is the number of symbols of the longest word."""
        self._longest = longest
        self._base, self._check, self._info = map(_array, (lexicon.base, lexicon.check, lexicon.info))
        self._repeats = lexicon.repeats
        self._first_cjk = lexicon.first_cjk
        # Words that end only where no letter of the same class follows.
        self._ends_at_border = np.array(
            [
                bool(ends) and all(needs & _ENDS == BORDER for category, needs in ends if category != ALLOW)
                for ends in lexicon.endings
            ]
        )
        self._codes = _codes(lexicon)
        self._classes = np.frombuffer(lexicon.classes, np.uint8)
        size = len(lexicon.joins)
        self._anywhere, self._at_start = (self._children(root, size) for root in (ANYWHERE, AT_WORD_START))
        first = np.concatenate((self._anywhere, self._at_start))
        self._stops_at_once = bool((self._info[first[first > 0]] & _STOPS).any())
        self._is_spelt = bool(lexicon.spelt)
        self._read_words(lexicon)

    def _read_words(self, lexicon: Lexicon) -> None:
        """What the trie's paths hold that texts are asked for: letters before what is spelt with digits, and others."""
        size = len(lexicon.joins)
        nodes = np.flatnonzero(self._check > AT_WORD_START)
        parents = self._check[nodes]
        codes, before = nodes - self._base[parents], parents - self._base[self._check[parents]]
        # By a code and a digit (the last column: any sign): one of the letters that this stands for may follow it.
        self._spells = np.zeros((size, _DIGITS + 1), np.bool_)
        for sign, letters in lexicon.spelt.items():
            self._spells[before[np.isin(codes, letters)], min(sign - FIRST_CODE, _DIGITS)] = True
        # How many of it in a row are in a word, at least two: a longer run of it may stand for those.
        self._longest_runs = np.full(size, 2, np.int32)
        repeated = nodes[codes == before]
        longer = repeated
        while len(longer := longer[np.isin(self._check[longer], repeated)]):
            self._longest_runs[longer - self._base[self._check[longer]]] += 1
            repeated = longer
        # A digit beside a CJK letter is in a word: such digits can't just be left out.
        cjk, digits = (codes >= self._first_cjk), codes <= LAST_DIGIT
        after_cjk, after_digit = before >= self._first_cjk, before <= LAST_DIGIT
        self._keeps_digits = bool(((cjk & after_digit) | (digits & after_cjk)).any())

    def places(self, points: npt.NDArray[np.uint32]) -> Found:
        """Where in these characters, some of them at least, a word may be."""
        codes = self._codes.take(points, mode="clip")
        used = np.flatnonzero(codes >= 0)
        symbols = codes.take(used)
        special = np.flatnonzero(codes < _SKIPPED)
        kinds = codes[special]
        found = [special[kinds == _UNUSUAL]]
        gaps = used[1:] - used[:-1] > 1
        apart = _apart(gaps, used, special[kinds == _UNSEEN])
        spots = np.empty((5, 0), np.int64)
        if self._repeats:
            same = (symbols[1:] == symbols[:-1]) & ~apart
            spots = self._runs(used, symbols, np.flatnonzero(same[1:] & same[:-1]))
        if self._is_spelt:
            spelt, digits = self._digits(symbols, apart)
            found += [used[spelt], self._signs(special[kinds == _SIGN], codes, used, symbols)]
            if self._keeps_digits:
                found.append(used[digits])
            lone = self._spots(used, digits, digits, np.zeros(len(digits), np.int32))
            spots = np.concatenate((spots, lone), axis=1)
        found.append(used[self._words(symbols, gaps, apart)])
        return Found(np.concatenate(found), spots)

    def _runs(self, used: Places, symbols: Int32, at: Places) -> Places:
        """By the places at which three equal symbols begin."""
        at = at[symbols[at] >= FIRST_CODE]
        first, last = np.ones((2, len(at)), np.bool_)
        first[1:] = last[:-1] = at[1:] - at[:-1] > 1
        starts, ends = at[first], at[last] + 2
        return self._spots(used, starts, ends, np.minimum(self._longest_runs[symbols[starts]], ends + 1 - starts))

    def _spots(self, used: Places, starts: Places, lasts: Places, most: Places | Int32) -> Places:
        lows = used[np.maximum(starts - self._longest, 0)]
        highs = used[np.minimum(lasts + self._longest, len(used) - 1)] + 1
        return np.stack((used[starts], used[lasts] + 1, most, lows, highs))

    def _digits(self, symbols: Int32, apart: Bools) -> tuple[Places, Places]:
        """Digits that may stand for a letter, and those between two CJK letters."""
        at = np.flatnonzero((symbols - FIRST_CODE).view(np.uint32) < _DIGITS)
        at = at[at > 0]
        at = at[~apart[at - 1]]
        before = symbols[at - 1]
        spelt = at[self._spells[before, symbols[at] - FIRST_CODE]]
        at = at[(before >= self._first_cjk) & (at + 1 < len(symbols))]
        return spelt, at[(symbols[at + 1] >= self._first_cjk) & ~apart[at]]

    def _signs(self, at: Places, codes: Int32, used: Places, symbols: Int32) -> Places:
        """Those of the signs that may stand for a letter, by the symbol before them."""
        if not len(at) or not len(used):
            return at[:0]
        before = np.searchsorted(used, at) - 1
        signs: Places = at[(before >= 0) & (codes[at - 1] != _SKIPPED) & self._spells[symbols[before], _DIGITS]]
        return signs

    def _words(self, symbols: Int32, gaps: Bools, apart: Bools) -> Places:
        """The symbols, by number, at which a whole word may begin."""
        classes = self._classes.take(symbols)
        # Where the character before is no letter of the same class: a word may start.
        boundary = np.ones(len(symbols), np.bool_)
        np.logical_or(classes[1:] != classes[:-1], gaps, out=boundary[1:])
        # What follows each symbol: nothing after the last one, and not over a gap between two that aren't CJK.
        latin = symbols < self._first_cjk
        following = np.zeros(len(symbols) + 1, np.int32)
        np.multiply(symbols[1:], ~(apart & latin[1:] & latin[:-1]), out=following[1:-1])
        anywhere = self._anywhere.take(symbols)
        starts = np.flatnonzero(boundary)
        at_start = self._at_start.take(symbols.take(starts))
        open_at, begun = np.flatnonzero(anywhere != 0), np.flatnonzero(at_start != 0)
        at = np.concatenate((open_at, starts.take(begun)))
        nodes = np.concatenate((anywhere.take(open_at), at_start.take(begun)))

        found = []
        behind = 1  # how far the next symbol is from the first
        if self._stops_at_once:
            found.append(at[self._ended(nodes, at + behind, classes, apart)])
        while len(nodes):
            slots = self._base.take(nodes) + following[behind:].take(at)
            going = np.flatnonzero(self._check.take(slots) == nodes)
            at, nodes = at.take(going), slots.take(going)
            behind += 1
            stops = np.flatnonzero(self._info.take(nodes) & _STOPS != 0)
            if len(stops):
                stopped = at.take(stops)
                found.append(stopped[self._ended(nodes.take(stops), stopped + behind, classes, apart)])
        return np.concatenate(found) if found else at

    def _ended(self, nodes: Int32, behind: Places, classes: npt.NDArray[np.uint8], apart: Bools) -> Bools:
        """Whether a word may end at each of the nodes, with the symbol number `behind` after it."""
        info = self._info[nodes]
        last = len(classes) - 1
        after = np.minimum(behind, last)
        own = classes[behind - 1]
        joined = (behind <= last) & ~apart[after - 1] & (classes[after] == own) & (own > 0) if last else behind < 0
        ended: Bools = (info & DENY_HERE > 0) & ~(joined & self._ends_at_border[info >> ENDING_SHIFT])
        ended |= info & (SPACE_CHILD | MARK_CHILD) > 0
        return ended

    def _children(self, root: int, size: int) -> Int32:
        slots = self._base[root] + np.arange(size, dtype=np.int32)
        children: Int32 = np.where(self._check[slots] == root, slots, 0).astype(np.int32)
        return children


def _apart(gaps: Bools, used: Places, unseen: Places) -> Bools:
    """Of symbols with something between them, those with more there than what is not seen."""
    if not len(unseen):
        return gaps
    behind, counts = np.unique(np.searchsorted(used, unseen), return_counts=True)
    inside = (behind > 0) & (behind < len(used))
    behind, counts = behind[inside], counts[inside]
    apart = gaps.copy()
    apart[behind - 1] = used[behind] - used[behind - 1] - 1 > counts
    return apart


def _codes(lexicon: Lexicon) -> Int32:
    """What each character of two planes becomes; the last stands for all beyond them."""
    pages, blocks = _array(lexicon.pages), _array(lexicon.blocks).reshape(-1, 256)
    entries = blocks[pages[: _TWO_PLANES // 256]].reshape(-1)
    codes: Int32 = entries & 0xFFFF
    codes[entries & SOFT > 0] = np.where(codes[entries & SOFT > 0] >= FIRST_CODE, _UNUSUAL, _SKIPPED)
    codes[entries & (SEPARATOR | DOT) > 0] = _SKIPPED
    signs = [code for code in lexicon.spelt if code > LAST_DIGIT and code not in lexicon.literal_signs]
    codes[np.isin(entries & 0xFFFF, signs) & (entries & SOFT > 0)] = _SIGN
    codes[entries & (INVISIBLE | MARK) > 0] = _UNSEEN
    codes[entries & VOICED > 0] = _UNUSUAL
    several = entries & SEVERAL > 0
    codes[several] = _plain_codes(entries[several] & 0xFFFFF, _array(lexicon.several), lexicon.joins)
    codes[-1] = _UNUSUAL
    return codes


def _plain_codes(places: Int32, several: Int32, joins: bytes) -> Int32:
    """For characters of several symbols: the code of a letter with marks only, and _UNUSUAL for others."""
    if not len(places):
        return places
    is_mark = np.frombuffer(joins, np.uint8) & IS_MARK > 0
    ends = places + several[places]
    plain = np.ones(len(places), np.bool_)
    for offset in range(2, int(several[places].max()) + 1):
        at = np.minimum(places + offset, len(several) - 1)
        plain &= (places + offset > ends) | is_mark[np.where(places + offset > ends, 0, several[at])]
    codes: Int32 = np.where(plain, several[places + 1], _UNUSUAL).astype(np.int32)
    return codes


def _array(view: memoryview) -> Int32:
    return np.frombuffer(view, np.int32)
