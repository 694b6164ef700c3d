"""Deny matches that are complete but not decided: an allow word may still contain them, or a letter join them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from bls.words.trie import CLASS_BITS, EXTENDS, FIRST_CODE, LAST_DIGIT

if TYPE_CHECKING:
    from bls.words.table import Lexicon

NEVER = 1 << 62  # a position that no stream reaches

# What the end of a match needs: no letter of its last one's class behind it; nothing that goes on with its last letter;
# or, in place of a border, an ending such as a Korean particle and then a border.
BORDER, LETTER_END, TAIL = 1, 2, 4
# A number of some digits will do for the border; and a word that counts when digits stand for some of its letters.
NUMBER, SPELT = 8, 16
END_BITS = 15
_FEWEST_DIGITS = 3


class Match(NamedTuple):
    """Raw characters `start` to `end` (exclusive) are a word of a category, by its number."""

    start: int
    end: int
    category: int
    line: int = 0  # of the category's list, that it was found by; 0 until it is decided, and where none is known


class Candidate(NamedTuple):
    match: Match
    needs: int  # what its end still needs, 0 when that is known
    tail: int = 0  # how far into an ending the text has come, by Lexicon.tails
    node: int = 0  # of the trie, where the word ends


class Candidates:
    """Those of one matcher. `waiting` is replaced, never changed."""

    __slots__ = ("_allowed_from", "_allowed_to", "_lexicon", "waiting")

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self.waiting: list[Candidate] = []
        self._allowed_to = -1  # where allow words ended last,
        self._allowed_from = NEVER  # and where the longest of them began

    def add(self, match: Match, needs: int, node: int) -> None:
        self.waiting = [*self.waiting, Candidate(match, needs, 0, node)]

    def allow(self, start: int, end: int) -> None:
        """An allow word is complete."""
        self._allowed_from = min(self._allowed_from, start) if end == self._allowed_to else start
        self._allowed_to = end

    def seen_border(self) -> None:
        """No letter follows."""
        if self.waiting:
            self.waiting = [Candidate(each.match, 0, 0, each.node) for each in self.waiting if self._is_whole(each)]

    def seen_letter(self, code: int, last: int) -> None:
        """The symbol `code` follows `last` at once."""
        if self.waiting:
            kept = (self._beside(candidate, code, last) for candidate in self.waiting)
            self.waiting = [candidate for candidate in kept if candidate]

    def seen_mark(self, letter_end: int, end: int) -> None:
        """A mark of the letter before `letter_end` stands before `end`: it goes with what ends there."""
        if self._allowed_to >= letter_end:
            self._allowed_to = end
        self.waiting = [
            candidate._replace(match=candidate.match._replace(end=end)) if candidate.needs and not candidate.tail
            else candidate
            for candidate in self.waiting
        ]  # fmt: skip

    def _beside(self, candidate: Candidate, code: int, last: int) -> Candidate | None:
        match, needs, tail, node = candidate
        if not needs:
            return candidate
        lexicon = self._lexicon
        if needs & NUMBER and FIRST_CODE <= code <= LAST_DIGIT:
            digits = tail + 1
            return Candidate(match, needs, digits, node) if digits < _FEWEST_DIGITS else Candidate(match, 0, 0, node)
        joins = lexicon.joins[code]
        is_joined = 0 < joins & CLASS_BITS == lexicon.classes[last]
        if needs & TAIL and is_joined and (following := lexicon.tails.get((tail, code))):
            return Candidate(match, needs, following, node)
        if joins & EXTENDS or (needs & BORDER and is_joined):
            return None
        return Candidate(match, 0, 0, node) if self._is_whole(candidate) else None

    def _is_whole(self, candidate: Candidate) -> bool:
        """Whether what stands behind the word so far may end there."""
        if candidate.needs & NUMBER:
            return not candidate.tail
        return candidate.tail in self._lexicon.tail_ends

    def settle(self, end: int, may_be_allowed_from: int) -> list[Match]:
        """Drops what an allow word that ends at `end` contains; returns what none can contain any more.

        An allow word that is still under way begins at `may_be_allowed_from` at the earliest.
        """
        allowed_from = self._allowed_from if self._allowed_to == end else NEVER
        waiting, decided = [], []
        for candidate in self._distinct():
            start = candidate.match.start
            if allowed_from <= start:
                continue
            if candidate.needs or may_be_allowed_from <= start:
                waiting.append(candidate)
            else:
                decided.append(self._decided(candidate))
        self.waiting = waiting
        return decided

    def rest(self) -> list[Match]:
        """What the end of the text decides: all of it."""
        if not self.waiting:
            return []
        self.seen_border()
        decided = [self._decided(each) for each in self._distinct()]
        self.waiting = []
        return decided

    def _distinct(self) -> Iterable[Candidate]:
        """Where two words make the same one, that which was found first: a spelling before a run of its letters."""
        if len(self.waiting) == 1:
            return self.waiting
        distinct: dict[tuple[Match, int, int], Candidate] = {}
        for each in self.waiting:
            distinct.setdefault(each[:3], each)
        return distinct.values()

    def _decided(self, candidate: Candidate) -> Match:
        start, end, category, _ = candidate.match
        return Match(start, end, category, self._lexicon.line(candidate.node, category))

    def copy(self) -> Candidates:
        copy = Candidates(self._lexicon)
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy
