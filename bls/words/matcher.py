"""Finds the words of a lexicon in a stream of text: which matches count, and from where on nothing is decided yet.

It follows, from every place where a word may begin, the path of the trie that the text takes ("items": a node and the
raw position of the first character). A dozen lines in `feed` do that for ordinary letters; all that is special, such
as separators, repeats, boundaries and words that end, is in the methods below it.

What matches, exactly (R is `max_gap`):
* Invisible characters are skipped. Between two symbols of a match are at most R characters that are no part of it.
* A separator (run) is a space between two letters that aren't CJK, and is skipped beside a CJK letter.
* A run of 3 to R equal letters may stand for any shorter one.
* A word that needs it has no letter of its own class beside it (bls.words.borders); for the right side more is awaited.
* A mark, such as an accent, is compared where a word has it, and else is invisible.
* A digit between two CJK letters is skipped, and one may stand for a Latin letter, where the category says so.
* A match counts unless one allow match contains it.
"""

from __future__ import annotations

from bls.words.candidates import END_BITS, NEVER, SPELT, Candidates, Match
from bls.words.table import ALLOW, DOT, INVISIBLE, MARK, SEPARATOR, SOFT, VOICED, Character, Lexicon, Treatment
from bls.words.trie import (
    ALLOW_BELOW,
    ALLOW_HERE,
    AT_WORD_START,
    CJK_CHILD,
    CJK_HIDE,
    ENDING_SHIFT,
    ENDS,
    FIRST_CODE,
    HIDE_BELOW,
    HIDE_HERE,
    IS_MARK,
    KATAKANA,
    LAST_DIGIT,
    SPACE,
    SPACE_CHILD,
    SPAN_BELOW,
    SPAN_HERE,
)

Item = tuple[int, int]  # node, raw position where it began
Waiting = tuple[int, int, int]  # and the position of its last symbol
Spelt = tuple[int, int, int]  # and how many letters of it are letters, up to _LETTERS
_LETTERS = 2  # that a word spelt with digits has at least
_MANY = 3  # so many equal letters are no spelling any more


class WordMatcher:
    """One stream's place in one lexicon. Lists are replaced, never changed, so a copy of it may share them."""

    __slots__ = (
        "_bridged", "_candidates", "_gap", "_gapped", "_last", "_lexicon", "_live", "_look_up", "_max_gap", "_over",
        "_plain", "_repeats", "_run", "_span_bits", "_spelt", "_treatments", "may_terminate", "position",
    )  # fmt: skip

    def __init__(self, lexicon: Lexicon, treatments: list[Treatment], max_gap: int) -> None:
        self._lexicon = lexicon
        self._look_up = lexicon.characters.__getitem__
        self._treatments = treatments
        self._max_gap = max_gap
        # Two more of its last letter would make a span longer.
        self._span_bits = SPAN_BELOW | SPAN_HERE if lexicon.repeats else SPAN_BELOW
        self.may_terminate = lexicon.may_terminate
        self.position = 0  # raw characters seen
        self._live: list[Item] = []  # at nodes that the last symbol led to
        self._over: list[Waiting] = []  # held over a gap, before any symbol
        self._gapped: list[Waiting] = []  # held over a gap that only a CJK symbol may follow
        self._bridged: list[Waiting] = []  # held over a digit that only a CJK symbol may follow
        self._spelt: list[Spelt] = []  # with digits in place of some letters
        self._repeats: list[Item] = []  # stayed where they were on a repeated letter
        self._candidates = Candidates(lexicon)
        self._last = SPACE  # code of the last symbol, a space after a gap
        self._run = 1  # how often the last symbol came in a row
        self._plain = True  # `_live` and `_last` are all there is to the state; the last symbol came once
        self._gap = 0  # invisible characters since the last symbol

    def feed(self, chunk: str) -> list[Match]:
        """The matches that are decided with `chunk`. Stops behind the character that decides a terminating one."""
        decided: list[Match] = []
        base, check, info, classes, first_cjk, last_spelt = self._lexicon.tables
        live, last, position, plain = self._live, self._last, self.position, self._plain
        for code, anywhere, at_word_start in map(self._look_up, chunk):
            if plain and ((code > last_spelt and code != last) or (not live and code >= 0)):
                fresh = []
                for node, start in live:
                    slot = base[node] + code
                    if check[slot] == node:
                        if info[slot] >= ENDS:
                            break
                        fresh.append((slot, start))
                else:
                    if anywhere:
                        fresh.append((anywhere, position))
                    if at_word_start and classes[last] != classes[code]:
                        fresh.append((at_word_start, position))
                    live = fresh
                    last = code
                    position += 1
                    continue
            elif (
                plain
                and code < 0
                and (anywhere == SEPARATOR or (anywhere == DOT and not live))
                and (not live or last < first_cjk)
            ):
                for node, _ in live:
                    if info[node] & (SPACE_CHILD | CJK_CHILD):
                        break
                else:
                    live, last = [], SPACE
                    position += 1
                    continue
            self._live, self._last, self.position = live, last, position
            before = len(decided)
            self._step(code, anywhere, at_word_start, decided)
            live, last, position = self._live, self._last, position + 1
            plain = self._plain
            if len(decided) > before and self._terminates(decided[before:]):
                break
        self._live, self._last, self.position = live, last, position
        return decided

    def finish(self) -> list[Match]:
        """The matches that are decided by the end of the text."""
        decided = self._candidates.rest()
        self._live, self._over, self._gapped, self._repeats, self._bridged, self._spelt = [], [], [], [], [], []
        self._plain = True
        return decided

    def undecided(self, out: int) -> tuple[int, int]:
        """From which raw position a character may still become hidden, and from which one part of a longer span.

        What is left of `out` went out already, masked, and needs no decision any more.
        """
        info = self._lexicon.info
        hide = span = self.position
        if self._plain:
            for node, start in self._live:
                bits = info[node]
                if bits & HIDE_BELOW and start < hide:
                    hide = start
                if bits & self._span_bits and start < span:
                    span = start
            return hide, span
        for items, hide_bits, span_bits in (
            # What is invisible behind a word goes with it if two more of its last letter come.
            (self._live, HIDE_BELOW | HIDE_HERE if self._lexicon.repeats else HIDE_BELOW, self._span_bits),
            (self._over, HIDE_BELOW, SPAN_BELOW),
            (self._gapped, CJK_HIDE, SPAN_BELOW),
            (self._bridged, CJK_HIDE, SPAN_BELOW),
            (self._spelt, HIDE_BELOW, SPAN_BELOW),
            (self._repeats, HIDE_BELOW | HIDE_HERE, SPAN_BELOW | SPAN_HERE),
        ):
            for node, start, *_ in items:
                bits = info[node]
                if bits & hide_bits and start < hide:
                    hide = start
                if bits & span_bits and start < span:
                    span = start
        for (start, end, category, _), *_ in self._candidates.waiting:
            if end <= out:
                continue
            treatment = self._treatments[category]
            if treatment.hides and start < hide:
                hide = start
            if treatment.spans and start < span:
                span = start
        return hide, span

    def snapshot(self) -> WordMatcher:
        """A copy that goes its own way."""
        copy = WordMatcher(self._lexicon, self._treatments, self._max_gap)
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        copy._candidates = self._candidates.copy()
        return copy

    def _terminates(self, decided: list[Match]) -> bool:
        return any(self._treatments[match.category].action == "terminate" for match in decided)

    def _step(self, code: int, kind: int, place: int, decided: list[Match]) -> None:
        """One Character, whatever it is. `position` is still its own."""
        if code >= 0:
            self._symbol(code, kind, place)
            self._over, self._gapped = [], []
        elif kind == SEPARATOR:
            self._forget_old()
            self._over, self._gapped = self._behind_gap(literal=False)
            self._live, self._repeats, self._last, self._run, self._gap = [], [], SPACE, 1, 0
            self._bridged, self._spelt = [], []
            self._candidates.seen_border()
        elif kind in (INVISIBLE, MARK):
            self._forget_old()
            self._gap += 1
            if self._gap > self._max_gap:
                self._live, self._repeats, self._last, self._run = [], [], SPACE, 1
                self._bridged, self._spelt = [], []
                self._candidates.seen_border()
            elif kind == MARK:
                self._mark(self._lexicon.characters.symbols[place][0][0])
        elif kind in (SOFT, DOT):  # a dot of a domain, and else a separator
            self._forget_old()
            over, gapped = self._behind_gap(literal=kind == SOFT)
            self._bridged = []
            self._symbol(*self._lexicon.characters.symbols[place][0])
            self._over, self._gapped, self._bridged = over, gapped, []
        elif kind == VOICED:
            is_katakana = self._lexicon.classes[self._last] == KATAKANA
            self._letters(self._lexicon.characters.symbols[place][not is_katakana :][:1])
        else:
            self._letters(self._lexicon.characters.symbols[place])
        waiting = self._candidates.waiting
        if waiting:
            decided += self._candidates.settle(self.position + 1, self._allow_live_from())
            waiting = self._candidates.waiting
        special = self._over or self._gapped or self._repeats or waiting or self._gap or self._bridged or self._spelt
        self._plain = not special and self._run <= 1

    def _letters(self, symbols: tuple[Character, ...]) -> None:
        joins = self._lexicon.joins
        for symbol in symbols:
            if joins[symbol[0]] & IS_MARK:
                self._mark(symbol[0])
            else:
                self._symbol(*symbol)
                self._over, self._gapped = [], []

    def _mark(self, code: int) -> None:
        """A mark of the last letter: words that have it go on, and others wait where they are."""
        child = self._lexicon.child
        marked = [(following, start) for node, start in self._settled_items() if (following := child(node, code))]
        self._live = self._live + marked
        self._candidates.seen_mark(self.position + 1 - self._gap, self.position + 1)
        for node, start in marked:
            self._end_word(node, start)

    def _forget_old(self) -> None:
        """Drops what has waited for more than `max_gap` characters."""
        if self._over or self._gapped:
            oldest = self.position - self._max_gap
            self._over = [item for item in self._over if item[2] >= oldest]
            self._gapped = [item for item in self._gapped if item[2] >= oldest]

    def _behind_gap(self, *, literal: bool) -> tuple[list[Waiting], list[Waiting]]:
        """`_over` and `_gapped` behind a separator; a soft one is meant literally too, so it is no space."""
        over, gapped = self._over, self._gapped
        items = self._settled_items()
        if not items:
            return over, gapped
        lexicon, info, since = self._lexicon, self._lexicon.info, self.position - self._gap - 1
        if self._last >= lexicon.first_cjk:
            return (over + [(*item, since) for item in items] if lexicon.separators else over), gapped
        if not literal:
            over = over + [(child, start, since) for node, start in items if (child := lexicon.child(node, SPACE))]
        if lexicon.separators:
            gapped = gapped + [(node, start, since) for node, start in items if info[node] & CJK_CHILD]
        return over, gapped

    def _settled_items(self) -> list[Item]:
        """Items that a symbol other than the last one may lead on."""
        return self._live + self._repeats if _MANY <= self._run <= self._max_gap else self._live

    def _symbol(self, code: int, anywhere: int, at_word_start: int) -> None:
        lexicon, position, last = self._lexicon, self.position, self._last
        base, check, info, classes, _, last_spelt = lexicon.tables
        if self._candidates.waiting:
            self._candidates.seen_letter(code, last)
        bridged = self._bridged
        if self._spelt or code in lexicon.spelt:
            self._spelt = self._spell(code)
        if bridged or code <= last_spelt:
            self._bridged = self._bridge(code)
        items, stayed = self._live, self._repeats
        if code == last and code >= FIRST_CODE:
            self._run += 1
            stayed = items + stayed if lexicon.repeats and self._run <= self._max_gap else []
        else:
            if stayed:
                items, stayed = self._settled_items(), []
            self._run = 1
        fresh: list[Item] = []
        for node, start in items:
            slot = base[node] + code
            if check[slot] == node:
                fresh.append((slot, start))
        if self._over or self._gapped or bridged:
            self._go_on(code, bridged, fresh)
        if anywhere:
            fresh.append((anywhere, position))
        if at_word_start and classes[last] != classes[code]:
            fresh.append((at_word_start, position))
        self._live, self._repeats, self._last, self._gap = fresh, stayed, code, 0
        for node, start in fresh + stayed if self._run >= _MANY else fresh:
            if info[node] >= ENDS:
                self._end_word(node, start)

    def _go_on(self, code: int, bridged: list[Waiting], fresh: list[Item]) -> None:
        """Adds where a symbol leads what waited for it."""
        child, waiting = self._lexicon.child, self._over
        if code >= self._lexicon.first_cjk:
            oldest = self.position - self._max_gap - 1
            waiting = [*waiting, *self._gapped, *(item for item in bridged if item[2] >= oldest)]
        for node, start, _ in waiting:
            if following := child(node, code):
                fresh.append((following, start))

    def _bridge(self, code: int) -> list[Waiting]:
        """What a digit lets wait for the next CJK letter."""
        lexicon = self._lexicon
        if not FIRST_CODE <= code <= LAST_DIGIT or self._last < lexicon.first_cjk:
            return []
        since = self.position - self._gap - 1
        return [(node, start, since) for node, start in self._settled_items() if lexicon.info[node] & CJK_CHILD]

    def _spell(self, code: int) -> list[Spelt]:
        """The words that go on with this symbol and have a digit or sign in place of a letter."""
        lexicon, child = self._lexicon, self._lexicon.child
        letters = lexicon.spelt.get(code, ())
        # A letter that is the first of its word hangs at a root.
        items = [(node, start, 1 + (lexicon.check[node] > AT_WORD_START)) for node, start in self._settled_items()]
        stands_for = [
            (child(node, letter), start, count) for letter in letters for node, start, count in [*items, *self._spelt]
        ]
        more = 0 if letters else 1
        literal = [(child(node, code), start, min(count + more, _LETTERS)) for node, start, count in self._spelt]
        spelt = [item for item in stands_for + literal if item[0]]
        for node, start, count in spelt:
            for category, needs in lexicon.endings[lexicon.info[node] >> ENDING_SHIFT]:
                if category != ALLOW and needs & SPELT and count >= _LETTERS:
                    self._candidates.add(Match(start, self.position + 1, category), needs & END_BITS, node)
        return spelt

    def _end_word(self, node: int, start: int) -> None:
        lexicon, end = self._lexicon, self.position + 1
        for category, needs in lexicon.endings[lexicon.info[node] >> ENDING_SHIFT]:
            if category == ALLOW:
                self._candidates.allow(start, end)
            else:
                self._candidates.add(Match(start, end, category), needs & END_BITS, node)

    def _allow_live_from(self) -> int:
        info = self._lexicon.info
        items = [*self._live, *(item[:2] for item in self._over), *(item[:2] for item in self._gapped)]
        starts = [start for node, start in items if info[node] & ALLOW_BELOW]
        starts += [start for node, start in self._repeats if info[node] & (ALLOW_BELOW | ALLOW_HERE)]
        return min(starts, default=NEVER)
