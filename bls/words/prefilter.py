"""Whole texts, such as prompts, many times faster than a stream: numpy finds the few texts that need a real look.

A text that the quick look clears holds no match; any other goes through the stream's own filter: the results are the
same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from string import ascii_letters

import numpy as np

from bls.words.quick_look import QuickLook, Spot
from bls.words.stream_filter import Hit, filter_text
from bls.words.table import WordTable

_BETWEEN = "\ue000"  # a private letter: no word holds it, so nothing matches from one text into the next
_WORTH_A_LOOK = 400  # characters; a quick look costs some 200 us however short the text is
_MOST_VARIANTS = 16  # of a text, that are together quicker to clear than the text is to filter
_AT_ONCE = 1 << 17  # characters; a look then costs hardly more than these do, and some 5 MB
# Without one of these no text holds personal data; only a first look, so it may be wrong the other way.
_PERSONAL = re.compile(
    r"@|(?:[0-9][^0-9A-Za-z]{0,3}){7}|sk[-_]|gh[pousr]_|github_pat|AKIA|ASIA|AIza|xox|hf_|glpat|nvapi|npm_|eyJ"
)
# Full-width and other forms of ASCII letters, digits and signs; and what is nothing, such as a zero-width space, beside
# an ASCII character. These would have to be folded before the first look could see anything.
_DISGUISED = re.compile(
    "[ªº²³¹ĳĲŀĿſǄ-ǌǱ-ǳʰ-˿ᴬ-ᵿᶛ-ᶿ\u2024\u2044\u2070-\u209c\u2100-\u218b\u2212\u2460-\u24ff\u2c7c\u2c7d\ua69c-\ua69d"
    "\ua770\ua7f2-\ua7f9\uab5c-\uab69\ufb00-\ufb06\ufb29\ufe30-\ufe6b－０-９＠Ａ-Ｚ＿ａ-ｚ"
    "\U00010780-\U000107ba\U0001d400-\U0001d7ff\U0001f100-\U0001f1ff\U0001fbf0-\U0001fbf9]"
    r"|[!-~][^\w\x00-\x7f\u2010-\u2029\u202f-\u205e\u3000-\u3029\u3030-\u303f\uff01-\uff65]"
)


class TextScanner:
    """Filters whole texts over one table. Keeps 0.5 MB for each way in which its categories match."""

    def __init__(self, table: WordTable) -> None:
        self._table = table
        self._looks = [QuickLook(lexicon, table.longest) for lexicon in table.lexicons]

    def scan(self, text: str) -> tuple[str, list[Hit]]:
        """What goes out for a text, and its hits: as `filter_text`."""
        return filter_text(self._table, text) if len(text) < _WORTH_A_LOOK else self.scan_all((text,))[0]

    def scan_all(self, texts: Sequence[str]) -> list[tuple[str, list[Hit]]]:
        """The same for many: each innocent text costs a fraction of what it would alone."""
        results: list[tuple[str, list[Hit]]] = [(text, []) for text in texts]
        for number in self._suspects(texts):
            results[number] = filter_text(self._table, texts[number])
        return results

    def looks_suspicious(self, text: str) -> bool:
        """Whether a quick look alone can't clear this text."""
        return bool(self._suspects((text,)))

    def _suspects(self, texts: Sequence[str]) -> list[int]:
        suspects, doubtful = self._found(texts)
        if self._table.pii:
            suspects.update(number for number, text in enumerate(texts) if may_be_personal(text))
        # What a text may stand for without its runs and lone digits is looked at too, all of that at once.
        numbers: list[int] = []
        variants: list[str] = []
        for number in doubtful.keys() - suspects:
            others = _variants(texts[number], doubtful[number])
            numbers += [number] * len(others)
            variants += others
            if not others:
                suspects.add(number)
        if variants:
            found, more = self._found(variants)
            for place, spots in more.items():
                # Shorter runs make no new ones, but a digit left out may, and a shorter run of digits be a lone one.
                if not all(most for _, _, most, _, _ in doubtful[numbers[place]] + spots):
                    found.add(place)
            suspects.update(numbers[place] for place in found)
        return sorted(suspects)

    def _found(self, texts: Sequence[str]) -> tuple[set[int], dict[int, list[Spot]]]:
        """The texts that look like holding a word; and what is doubtful in texts, by their number."""
        suspects: set[int] = set()
        doubtful: dict[int, list[Spot]] = {}
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        first = seen = 0
        while first < len(texts):
            behind = max(first + 1, int(np.searchsorted(ends, seen + _AT_ONCE)))
            some = texts[first:behind]
            joined = _BETWEEN.join(some) if len(some) > 1 else some[0]
            points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
            borders = ends[first:behind] - seen
            for look in self._looks:
                found = look.places(points)
                suspects.update((np.searchsorted(borders, found.suspects, "right") + first).tolist())
                numbers = np.searchsorted(borders, found.spots[0], "right")
                start, end, most, low, high = found.spots
                begin = np.concatenate(([0], borders))[numbers]
                within = (start - begin, end - begin, most, np.maximum(low - begin, 0), high - begin)
                for number, *spot in zip((numbers + first).tolist(), *(each.tolist() for each in within), strict=True):
                    doubtful.setdefault(number, []).append(tuple(spot))
            first, seen = behind, int(ends[behind - 1])
        return suspects, doubtful


def _variants(text: str, spots: list[Spot]) -> list[str]:
    """The parts of a text around its spots, without lone digits and with runs of equal letters as any fewer.

    Nothing for very many spots, or for runs that aren't plain.
    """
    if len(spots) > _MOST_VARIANTS:
        return []
    groups: list[list[Spot]] = []
    behind = 0
    for start, end, most, low, high in sorted(set(spots)):
        if start < behind or len(set(text[start:end].lower())) != 1:
            return []
        behind = end
        # Not from the midst of a Latin word, the rest of which might look like another one.
        low, high = len(text[:low].rstrip(ascii_letters)), len(text) - len(text[high:].lstrip(ascii_letters))
        spot = start, end, most, low, high
        if groups and low < groups[-1][-1][-1]:
            groups[-1].append(spot)
        else:
            groups.append([spot])
    if sum(prod(most or 1 for _, _, most, _, _ in group) for group in groups) > _MOST_VARIANTS:
        return []
    return [variant for group in groups for variant in _combined(text, group)]


def _combined(text: str, group: list[Spot]) -> Iterator[str]:
    at, end = group[0][3], group[-1][4]
    parts: list[Sequence[str]] = []
    for start, behind, most, _, _ in group:
        parts += [(text[at:start],), [text[start : start + size] for size in range(1, most + 1)] or [""]]
        at = behind
    rest = text[at:end]
    for chosen in product(*parts):
        yield "".join(chosen) + rest


def may_be_personal(text: str) -> bool:
    """Whether a text is worth the exact look for personal data. Never wrong when it says no."""
    return bool(_PERSONAL.search(text)) or (not text.isascii() and bool(_DISGUISED.search(text)))
