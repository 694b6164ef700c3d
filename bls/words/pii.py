"""Finds personal data in a stream: e-mail addresses, phone numbers, Chinese ID numbers, bank cards and API keys.

A match counts when no beginning of a pattern stands left of it, so nothing depends on how the text was cut. What is
held is at most the longest pattern (`pii_kinds.longest`), mostly the current word or number. Full-width digits and
letters count as ASCII, and invisible characters as nothing.
"""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Mapping, Sequence

from bls.words.candidates import Match
from bls.words.pii_kinds import COMPILED, CONTEXT, Compiled, any_hint
from bls.words.table import Treatment

_MAX_INVISIBLE = 16  # in a row; more of them end a number


class _Folded(dict[str, str]):
    """What a character is here: full-width ones are ASCII, invisible ones nothing. Filled as they come."""

    def __missing__(self, character: str) -> str:
        if len(self) > 5000:
            self.clear()
        folded = unicodedata.normalize("NFKC", character)
        if unicodedata.category(character) in ("Cf", "Mn", "Me"):
            folded = ""
        elif len(folded) != 1 or not folded.isascii():
            folded = "\n"
        self[character] = folded
        return folded


_FOLDED = _Folded()


class PiiMatcher:
    """One stream's undecided tail. The same interface as WordMatcher's."""

    __slots__ = (
        "_any_hint",
        "_at",
        "_from",
        "_hide",
        "_invisible",
        "_kinds",
        "_span",
        "_terminates",
        "_text",
        "may_terminate",
        "position",
    )

    def __init__(self, kinds: Mapping[str, int], treatments: list[Treatment]) -> None:
        """`kinds`: the number of each wanted kind's category."""
        self._kinds = [(COMPILED[name], number, treatments[number]) for name, number in kinds.items()]
        self._any_hint = any_hint(tuple(kinds)).search
        self._terminates = {number for _, number, treatment in self._kinds if treatment.action == "terminate"}
        self.may_terminate = bool(self._terminates)
        self.position = 0
        self._text = ""  # folded: CONTEXT characters, then what is undecided
        self._at: Sequence[int] = range(0)  # the raw position of each of its characters
        self._from = [0] * len(self._kinds)  # where in it each kind goes on
        self._hide = self._span = 0  # as `undecided` gives them
        self._invisible = 0  # in a row

    def feed(self, chunk: str) -> list[Match]:
        """The matches that are decided with `chunk`. Stops behind the character that decides a terminating one."""
        if not self._terminates:
            self._take(chunk)
            return self._decide(at_end=False)
        decided: list[Match] = []
        for character in chunk:
            self._take(character)
            decided += self._decide(at_end=False)
            if any(match.category in self._terminates for match in decided):
                break
        return decided

    def finish(self) -> list[Match]:
        """The matches that are decided by the end of the text."""
        return self._decide(at_end=True)

    def whole(self, text: str) -> list[Match]:
        """All matches of a text that nothing follows: what `feed` and `finish` give, in a fraction of their time."""
        self._take(text)
        return self._decide(at_end=True)

    def undecided(self, out: int) -> tuple[int, int]:
        """As WordMatcher.undecided; a match counts as soon as it is known, so `out` makes no difference."""
        return self._hide, self._span

    def snapshot(self) -> PiiMatcher:
        """A copy that goes its own way."""
        return copy.copy(self)

    def _take(self, chunk: str) -> None:
        folded = chunk if chunk.isascii() else "".join(map(_FOLDED.__getitem__, chunk))
        if len(folded) < len(chunk):
            self._take_invisible(chunk)
            return
        first, self.position = self.position, self.position + len(chunk)
        at = self._at
        if isinstance(at, range):  # nothing invisible in the tail: its characters lie side by side
            self._at = range(first - len(at), self.position)
        else:
            self._at = [*at, *range(first, self.position)]
        self._text += folded
        self._invisible = 0 if chunk else self._invisible

    def _take_invisible(self, chunk: str) -> None:
        text, at = [], []
        for position, character in enumerate(chunk, self.position):
            folded = _FOLDED[character]
            self._invisible = 0 if folded else self._invisible + 1
            if self._invisible > _MAX_INVISIBLE:
                folded = "\n"
            if folded:
                text.append(folded)
                at.append(position)
        self.position += len(chunk)
        self._text += "".join(text)
        self._at = [*self._at, *at]

    def _decide(self, *, at_end: bool) -> list[Match]:
        text, at = self._text, self._at
        size = len(text)
        decided: list[Match] = []
        self._hide = self._span = self.position
        if not self._any_hint(text, min(self._from, default=size)):
            kept = min(size, CONTEXT)
            self._text, self._at = text[size - kept :], at[size - kept :]
            self._from = [kept] * len(self._kinds)
            return decided
        places = []
        for begin, (kind, category, treatment) in zip(self._from, self._kinds, strict=True):
            place = size
            while kind.hint.search(text, begin):
                opened = None if at_end else kind.beginning.search(text, begin)
                place = opened.start() if opened else size
                found = self._next(kind, text, begin) if place > begin else None
                if found is None or found[0] >= place:
                    break
                decided.append(Match(at[found[0]], at[found[1] - 1] + 1, category))
                begin, place = found[1], size
            places.append(place)
            if place < size and treatment.hides:
                self._hide = min(self._hide, at[place])
                if treatment.spans:
                    self._span = min(self._span, at[place])
        self._from = places
        self._trim()
        return decided

    @staticmethod
    def _next(kind: Compiled, text: str, begin: int) -> tuple[int, int] | None:
        while match := kind.whole.search(text, begin):
            start = match.start()
            if size := kind.check(match[0], text[max(0, start - CONTEXT) : start]):
                return start, start + size
            begin = match.start() + 1
        return None

    def _trim(self) -> None:
        keep = max(0, min(self._from, default=0) - CONTEXT)
        if keep:
            self._text, self._at = self._text[keep:], self._at[keep:]
            self._from = [begin - keep for begin in self._from]
