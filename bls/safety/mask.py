"""Parts of a prompt that are hidden from the engine: listed words and personal data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bls.words.matcher import WordMatcher
from bls.words.pii import PiiMatcher
from bls.words.pii_kinds import COMPILED
from bls.words.prefilter import may_be_personal
from bls.words.table import Treatment, WordTable


class Span(NamedTuple):
    """Characters `start` to `end` (exclusive), and what stands in their place; None: one mask for each character."""

    start: int
    end: int
    name: str  # the category of a word, or the kind of personal data
    text: str | None
    line: int = 0  # of the category's list; 0 where none is known


class WordFinder:
    """The listed words in whole texts, whatever the lists do with them in an answer.

    Without TextScanner's quick look: that clears short texts, hardly any of 1,000 characters, and costs memory.
    """

    def __init__(self, table: WordTable) -> None:
        self.table = table
        # No action that ends a text: in a prompt every match is of interest.
        self._treatments = [Treatment(treatment.name, "mask", "") for treatment in table.treatments]
        self._texts = [
            treatment.text if treatment.action == "replace" else None for treatment in table.treatments
        ]  # fmt: skip

    def spans(self, text: str) -> list[Span]:
        """Every match that counts, in the order of the text."""
        found = []
        for lexicon in self.table.lexicons:
            matcher = WordMatcher(lexicon, self._treatments, self.table.max_gap)
            found += [*matcher.feed(text), *matcher.finish()]
        return [
            Span(start, end, self._treatments[category].name, self._texts[category], line)
            for start, end, category, line in sorted(found)
        ]

    def last_words(self, category: str) -> str:
        """What an answer with such a word would end with, if that is anything."""
        found = [each.text for each in self.table.treatments if each.name == category and each.action == "terminate"]
        return found[0] if found else ""


def personal_spans(text: str, kinds: Iterable[str], masks: Mapping[str, str]) -> list[Span]:
    """Personal data of these kinds; kinds may overlap."""
    if not may_be_personal(text):
        return []
    names = [kind for kind in COMPILED if kind in kinds]
    matcher = PiiMatcher(
        {kind: number for number, kind in enumerate(names)}, [Treatment(kind, "mask", "") for kind in names]
    )
    found = sorted(matcher.whole(text))
    return [Span(start, end, names[kind], masks.get(names[kind], f"[{names[kind]}]")) for start, end, kind, _ in found]


def masked(text: str, spans: Iterable[Span], mask: str) -> str:
    """The text with all spans hidden. Of those that overlap, the first and longest says what stands there."""
    parts = []
    at = 0
    for start, end, what in _joined(spans):
        parts += [text[at:start], mask * (end - start) if what is None else what]
        at = end
    return "".join(parts) + text[at:]


def _joined(spans: Iterable[Span]) -> list[tuple[int, int, str | None]]:
    joined: list[tuple[int, int, str | None]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if joined and span.start < joined[-1][1]:
            start, end, what = joined[-1]
            joined[-1] = start, max(end, span.end), what
        else:
            joined.append((span.start, span.end, span.text))
    return joined
