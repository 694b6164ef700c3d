"""The filter of one stream: text goes in by pieces, and comes out as soon as nothing can change what is right for it.

What comes out in all depends on the whole text only, never on the pieces. No character of a match that counts goes out
before it is masked, replaced or has ended the stream; every character held could still become part of one.

    stream = WordFilter(table)
    for piece in pieces:
        send(stream.push(piece))
    send(stream.finish())
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from bls.words.candidates import Match
from bls.words.list_files import line_name
from bls.words.matcher import WordMatcher
from bls.words.pii import PiiMatcher
from bls.words.table import WordTable

_KEPT_HITS = 1000  # of one stream; `counts` knows them all


class Hit(NamedTuple):
    """Raw characters `start` to `end` (exclusive) of the stream matched `category`; the text itself isn't kept."""

    category: str
    start: int
    end: int
    action: str


class WordFilter:
    """One stream over a shared table. Feed it whole characters only, never half-decoded ones."""

    def __init__(self, table: WordTable) -> None:
        self.terminated = False  # a terminating word came: what is pushed now is swallowed
        self.counts: Counter[str] = Counter()  # matches by category
        self.lines: dict[str, None] = {}  # of the lists, that matches were found by, such as deny/names.txt:12
        self._table = table
        self._treatments = table.treatments
        matchers: list[WordMatcher | PiiMatcher] = [
            WordMatcher(lexicon, table.treatments, table.max_gap) for lexicon in table.lexicons
        ]
        if table.pii:
            matchers.append(PiiMatcher(table.pii, table.treatments))
        if len(matchers) > 1:
            # One that may terminate goes first: the others then see no more of the text than it did.
            matchers.sort(key=lambda matcher: not matcher.may_terminate)
        self._first, *self._others = matchers
        self._ends = [matcher.may_terminate for matcher in matchers].count(True)
        self._text = ""  # not out yet
        self._base = 0  # raw position of its first character
        self._spans: list[Match] = []  # decided, hidden, not out yet
        self._hits: list[Hit] = []

    @property
    def hits(self) -> list[Hit]:
        """The matches decided so far, in the order of the text; of very many, the first decided."""
        return sorted(self._hits, key=lambda hit: (hit.start, hit.end, hit.category))

    @property
    def version(self) -> str:
        """Of the lists that this stream goes by."""
        return self._table.version

    @property
    def may_terminate(self) -> bool:
        """Whether there is a word that would end the stream."""
        return self._ends > 0

    @property
    def totals(self) -> list[tuple[str, str, int]]:
        """What was found so far: category, action, and how many matches."""
        actions = {treatment.name: treatment.action for treatment in self._treatments}
        return [(category, actions[category], count) for category, count in sorted(self.counts.items())]

    @property
    def held(self) -> int:
        """How many characters were pushed and are not out yet."""
        return len(self._text)

    def push(self, text: str) -> str:
        """What may go out now that `text` has come."""
        if self.terminated:
            return ""
        if self._others:
            decided = self._feed_all(text)
            hide, _ = self._undecided()
        else:
            decided = self._first.feed(text)
            hide, _ = self._first.undecided(self._base)
        text = self._text + text
        if decided or self._spans:
            self._text = text
            return self._out(decided)
        size = hide - self._base
        if size <= 0:  # masked characters may be out already, left of `hide`
            self._text = text
            return ""
        self._text, self._base = text[size:], hide
        return text[:size]

    def finish(self, is_cut: bool = False) -> str:
        """The rest, at the end of the stream; if its text was cut off, without the head of a word to be hidden."""
        if self.terminated:
            return ""
        matchers = (self._first, *self._others)
        heads = []
        if is_cut:
            heads = [matcher.undecided(self._base)[0] for matcher in matchers if isinstance(matcher, WordMatcher)]
        decided = [match for matcher in matchers for match in matcher.finish()]
        if heads:
            return self._out_before(min(heads), decided)
        if decided or self._spans:
            return self._out(decided)
        text, self._text = self._text, ""
        self._base += len(text)
        return text

    def _out_before(self, head: int, decided: list[Match]) -> str:
        """All but what lies behind raw position `head`, where a match reaches no further."""
        if last := self._note(decided):
            return self._end(last, head)
        cut = head
        for span in sorted(self._spans):
            cut = max(cut, span.end) if span.start <= cut else cut
        text = self._render(cut, cut)
        self._text, self._spans = "", []
        return text

    def _feed_all(self, text: str) -> list[Match]:
        """Feeds every matcher up to the character at which the first of them terminates, if one does."""
        begin = self._base + len(self._text)
        if self._ends > 1:
            return self._feed_until_one_ends(text, begin)
        decided = self._first.feed(text)
        seen = text[: self._first.position - begin]
        for matcher in self._others:
            decided += matcher.feed(seen)
        return decided

    def _feed_until_one_ends(self, text: str, begin: int) -> list[Match]:
        matchers = [self._first, *self._others]
        before = [matcher.snapshot() for matcher in matchers]
        decided = [match for matcher in matchers for match in matcher.feed(text)]
        stop = min(matcher.position for matcher in matchers)
        if stop < begin + len(text):
            decided = [match for matcher in before for match in matcher.feed(text[: stop - begin])]
            self._first, *self._others = before
        return decided

    def _out(self, decided: list[Match]) -> str:
        hide, span = self._undecided()
        if decided and (last := self._note(decided)):
            return self._end(last, hide)
        text = self._render(hide, span)
        if self._text:  # what still waited for a decision may be out now, masked by another match
            text += self._render(*self._undecided())
        return text

    def _undecided(self) -> tuple[int, int]:
        hide, span = self._first.undecided(self._base)
        for matcher in self._others:
            matcher_hide, matcher_span = matcher.undecided(self._base)
            hide, span = min(hide, matcher_hide), min(span, matcher_span)
        return hide, span

    def _note(self, decided: list[Match]) -> Match | None:
        """Counts matches and keeps those to hide; returns the first that terminates."""
        last: Match | None = None
        for match in sorted(decided):
            treatment = self._treatments[match.category]
            self.counts[treatment.name] += 1
            if len(self._hits) < _KEPT_HITS:
                self._hits.append(Hit(treatment.name, match.start, match.end, treatment.action))
                if match.line:
                    self.lines[line_name("deny", treatment.name, match.line)] = None
            if treatment.action == "terminate":
                last = last or match
            elif treatment.hides:
                self._spans.append(match)
        return last

    def _end(self, last: Match, hide: int) -> str:
        """The clean text before the match, and the last words. What was undecided by then stays in."""
        cut = min(hide, last.start)
        # A span to be replaced that reaches over the cut can't be shown in part.
        cut = min([cut, *(start for start, end, text in self._replaced() if start < cut < end)])
        clean = self._render(cut, cut)
        self.terminated = True
        self._text, self._spans = "", []
        return clean + self._treatments[last.category].text

    def _render(self, hide: int, span: int) -> str:
        """What goes out when nothing changes any more left of `hide`, and no closed span can begin left of `span`."""
        replaced = self._replaced()
        masked = [(match.start, match.end) for match in sorted(self._spans) if self._action(match) == "mask"]
        parts: list[str] = []
        at, end = self._base, self._base + len(self._text)
        while at < end:
            while replaced and replaced[0][1] <= at:
                replaced.pop(0)
            while masked and masked[0][1] <= at:
                masked.pop(0)
            if replaced and replaced[0][0] <= at:
                _, behind, text = replaced[0]
                if span < behind:
                    break  # a longer one may still begin inside it
                parts.append(text)
                at = behind
                continue
            until = min(end, replaced[0][0] if replaced else end)
            if masked and masked[0][0] <= at:
                until = min(until, masked[0][1], span)
                parts.append(self._table.mask * (until - at))
            else:
                until = max(at, min(until, masked[0][0] if masked else end, hide))
                parts.append(self._text[at - self._base : until - self._base])
            if until <= at:
                break
            at = until
        self._text = self._text[at - self._base :]
        self._base = at
        self._spans = [match for match in self._spans if match.end > at]
        return "".join(parts)

    def _replaced(self) -> list[tuple[int, int, str]]:
        """Spans to be replaced, those that overlap joined; the text is that of the first and longest."""
        joined: list[tuple[int, int, str]] = []
        for match in sorted(self._spans, key=lambda match: (match.start, -match.end, match.category)):
            if self._action(match) != "replace":
                continue
            if joined and match.start < joined[-1][1]:
                first, end, text = joined[-1]
                joined[-1] = first, max(end, match.end), text
            else:
                joined.append((match.start, match.end, self._treatments[match.category].text))
        return joined

    def _action(self, match: Match) -> str:
        return self._treatments[match.category].action


def filter_text(table: WordTable, text: str) -> tuple[str, list[Hit]]:
    """A whole text at once: what a stream of it would give."""
    stream = WordFilter(table)
    return stream.push(text) + stream.finish(), stream.hits
