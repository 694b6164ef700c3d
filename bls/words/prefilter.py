"""Whole texts, such as prompts, many times faster than a stream: numpy finds the few texts that need a real look.

The quick look follows every path of the trie to its first word, for all positions at once. It is too suspicious rather
than too exact: what needs a closer look, such as repeats and right boundaries, is only a reason
for one. A text that it clears holds no match; any other goes through the stream's own filter: the results are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bls.words.candidates import BORDER, NUMBER, TAIL
from bls.words.stream_filter import Hit, filter_text
from bls.words.table import ALLOW, DOT, INVISIBLE, MARK, SEPARATOR, SEVERAL, SOFT, VOICED, Lexicon, WordTable
from bls.words.trie import (
    ANYWHERE,
    AT_WORD_START,
    DENY_HERE,
    ENDING_SHIFT,
    FIRST_CODE,
    IS_MARK,
    LAST_DIGIT,
    MARK_CHILD,
    SPACE,
    SPACE_CHILD,
)

Int32 = npt.NDArray[np.int32]

_ENDS = BORDER | TAIL | NUMBER
_SIGN = 4  # beside the classes of letters: one that may stand for a letter
_SKIPPED, _UNUSUAL, _UNSEEN = -1, -2, -3
_TWO_PLANES = 0x20000  # with the emoji and mathematical letters; beyond are rare Chinese characters
_BETWEEN = "\ue000"  # a private letter: no word holds it, so nothing matches from one text into the next
_WORTH_A_LOOK = 400  # characters; a quick look costs some 200 us however short the text is
_AT_ONCE = 1 << 15  # characters; the arrays of one look then stay in the processor's cache
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
        self._looks = [_QuickLook(lexicon) for lexicon in table.lexicons]

    def scan(self, text: str) -> tuple[str, list[Hit]]:
        """What goes out for a text, and its hits: as `filter_text`."""
        return filter_text(self._table, text) if len(text) < _WORTH_A_LOOK else self.scan_all((text,))[0]

    def scan_all(self, texts: Sequence[str]) -> list[tuple[str, list[Hit]]]:
        """The same for many, at some 5 us for each 120 characters of innocent text (one alone: 80 us)."""
        results: list[tuple[str, list[Hit]]] = [(text, []) for text in texts]
        first = 0
        while first < len(texts):
            behind, size = first + 1, len(texts[first])
            while behind < len(texts) and size + len(texts[behind]) < _AT_ONCE:
                size += len(texts[behind])
                behind += 1
            for number in self._suspects(texts[first:behind]):
                results[first + number] = filter_text(self._table, texts[first + number])
            first = behind
        return results

    def looks_suspicious(self, text: str) -> bool:
        """Whether a quick look alone can't clear this text."""
        return bool(self._suspects((text,)))

    def _suspects(self, texts: Sequence[str]) -> list[int]:
        suspects, runs = self._found(texts)
        if self._table.pii:
            suspects.update(number for number, text in enumerate(texts) if may_be_personal(text))
        # A run of equal letters may stand for one or two of them: those texts are looked at again, all at once.
        numbers: list[int] = []
        variants: list[str] = []
        for number in runs.keys() - suspects:
            shorter = _without_run(texts[number], runs[number])
            if shorter:
                numbers += [number] * len(shorter)
                variants += shorter
            else:
                suspects.add(number)
        if variants:
            found, more = self._found(variants)
            suspects.update(numbers[place] for place in found | more.keys())
        return sorted(suspects)

    def _found(self, texts: Sequence[str]) -> tuple[set[int], dict[int, list[int]]]:
        """The texts that look like holding a word; and, of those with runs, where three equal letters begin."""
        joined = _BETWEEN.join(texts) if len(texts) > 1 else texts[0]
        points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        ends = np.cumsum([len(text) + 1 for text in texts])
        suspects: set[int] = set()
        runs: dict[int, list[int]] = {}
        for look in self._looks:
            found, more = look.places(points)
            suspects.update(np.searchsorted(ends, found, "right").tolist())
            numbers = np.searchsorted(ends, more, "right").tolist()
            for number, place in zip(numbers, more.tolist(), strict=True):
                runs.setdefault(number, []).append(place - int(ends[number]) + len(texts[number]) + 1)
        return suspects, runs


def _without_run(text: str, places: list[int]) -> list[str]:
    """A text with its run of equal letters as one and as two; nothing where it has several, or one in disguise."""
    start, end = places[0], places[-1] + 3
    run = text[start:end]
    if len(places) != end - start - 2 or len(set(run.lower())) != 1:
        return []
    return [text[:start] + run[:size] + text[end:] for size in (1, 2)]


def may_be_personal(text: str) -> bool:
    """Whether a text is worth the exact look for personal data. Never wrong when it says no."""
    return bool(_PERSONAL.search(text)) or (not text.isascii() and bool(_DISGUISED.search(text)))


class _QuickLook:
    """One lexicon's tables, as numpy arrays over the mapped file."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._base, self._check, self._info = map(_array, (lexicon.base, lexicon.check, lexicon.info))
        self._repeats = lexicon.repeats
        self._first_cjk = lexicon.first_cjk
        self._spelt = bool(lexicon.spelt)
        # Words that end only where no letter of the same class follows.
        self._ends_at_border = np.array(
            [
                bool(ends) and all(needs & _ENDS == BORDER for category, needs in ends if category != ALLOW)
                for ends in lexicon.endings
            ]
        )
        pages, blocks = _array(lexicon.pages), _array(lexicon.blocks).reshape(-1, 256)
        entries = blocks[pages[: _TWO_PLANES // 256]].reshape(-1)
        codes = entries & 0xFFFF
        codes[entries & SOFT > 0] = np.where(codes[entries & SOFT > 0] >= FIRST_CODE, _UNUSUAL, _SKIPPED)
        codes[entries & (SEPARATOR | DOT) > 0] = _SKIPPED
        signs = [code for code in lexicon.spelt if code > LAST_DIGIT and code not in lexicon.literal_signs]
        is_sign = np.isin(entries & 0xFFFF, signs) & (entries & SOFT > 0)
        codes[is_sign] = _SKIPPED
        codes[entries & (INVISIBLE | MARK) > 0] = _UNSEEN
        codes[entries & VOICED > 0] = _UNUSUAL
        several = entries & SEVERAL > 0
        codes[several] = _plain_codes(entries[several] & 0xFFFFF, _array(lexicon.several), lexicon.joins)
        codes[-1] = _UNUSUAL  # all that is beyond them
        self._codes = codes
        self._traits = np.frombuffer(lexicon.classes, np.uint8)[np.maximum(codes, 0)] | np.where(is_sign, _SIGN, 0)
        self._traits = self._traits.astype(np.uint8)
        size = len(lexicon.joins)
        self._anywhere, self._at_start = (self._children(root, size) for root in (ANYWHERE, AT_WORD_START))

    def places(self, points: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions that look like a word, or can't be judged by a quick look; and where three equal letters begin."""
        codes = self._codes.take(points, mode="clip")
        used = np.flatnonzero(codes >= 0)
        symbols = codes[used]
        found = [np.flatnonzero(codes == _UNUSUAL)]
        runs = used[:0]
        if self._repeats and len(symbols) > 2:
            same = symbols[1:] == symbols[:-1]
            runs = used[np.flatnonzero(same[1:] & same[:-1] & (symbols[2:] >= FIRST_CODE))]
        # Where the character before is no letter of the same class: a word may start.
        classes = self._traits.take(points, mode="clip")
        boundary = np.empty(len(codes), np.bool_)
        boundary[:1] = True
        np.not_equal(classes[1:], classes[:-1], out=boundary[1:])
        # What follows each symbol: nothing after the last one, and not over a gap between two that aren't CJK.
        separators = np.cumsum(codes == _SKIPPED, dtype=np.int32)[used]
        apart = separators[1:] > separators[:-1]
        latin = symbols < self._first_cjk
        if self._spelt:
            # A digit or sign behind a letter may stand for one, and a digit between two CJK letters for nothing.
            digit = (symbols[1:] >= FIRST_CODE) & (symbols[1:] <= LAST_DIGIT) & ~apart
            letter = (symbols[:-1] > LAST_DIGIT) & (symbols[:-1] < SPACE)
            found.append(used[1:][digit & letter])
            alone = digit[:-1] & ~latin[:-2] & ~latin[2:] & ~apart[1:]
            found.append(used[1:-1][alone])
            found.append(np.flatnonzero((classes[1:] == _SIGN) & (classes[:-1] > 0)) + 1)
        following = np.zeros(len(symbols) + 1, np.int32)
        np.multiply(symbols[1:], ~(apart & latin[1:] & latin[:-1]), out=following[1:-1])
        letters = classes[used]
        joined = np.zeros(len(symbols) + 1, np.bool_)
        joined[1:-1] = ~apart & (letters[1:] == letters[:-1]) & (letters[1:] > 0)
        for nodes in (self._anywhere[symbols], self._at_start[symbols] * boundary[used]):
            at = np.flatnonzero(nodes)
            found.append(used[self._follow(following, joined, at, nodes[at])])
        return np.concatenate(found), runs

    def _follow(
        self, symbols: Int32, joined: npt.NDArray[np.bool_], at: npt.NDArray[np.int64], nodes: Int32
    ) -> npt.NDArray[np.int64]:
        """Those of the places `at`, whose symbol leads to `nodes`, at which a whole word may begin.

        `symbols` and `joined` tell, by place, what follows, and whether it is a letter of the same class.
        """
        base, check = self._base, self._check
        found = []
        following = at + 1
        while len(nodes):
            info = self._info[nodes]
            endings = info >> ENDING_SHIFT
            ended = (info & DENY_HERE > 0) & ~(joined[following] & self._ends_at_border[endings])
            ended |= info & (SPACE_CHILD | MARK_CHILD) > 0
            if ended.any():
                found.append(at[ended])
            slots = base[nodes] + symbols[following]
            going = np.flatnonzero(check[slots] == nodes)
            at, nodes, following = at[going], slots[going], following[going] + 1
        return np.concatenate(found) if found else at

    def _children(self, root: int, size: int) -> Int32:
        slots = self._base[root] + np.arange(size, dtype=np.int32)
        children: Int32 = np.where(self._check[slots] == root, slots, 0).astype(np.int32)
        return children


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
