"""The prompt's checks: each looks at the turns it is meant for and says what it found. None of them keeps any text.

What they need beside the prompt is in `Sources`. They may raise: `bls.safety.judge` then does what the table says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bls.errors import EngineUnavailable
from bls.safety.mask import Span, WordFinder, personal_spans
from bls.safety.obfuscation import hidden_texts
from bls.safety.repetition import repeated_share
from bls.safety.script import script_shares
from bls.safety.settings import (
    ALLOW,
    BUDGET_BYTES,
    MASK,
    OPEN,
    REFUSE,
    ROUTE,
    Check,
    Classifier,
    Hidden,
    Limits,
    Patterns,
    PersonalData,
    Repetition,
    Words,
)
from bls.tokens.messages import PLAIN, USER, Turn
from bls.words.list_files import line_name
from bls.words.pattern_matcher import Match, PatternScanner
from bls.words.table import NewestTable, WordTable

Classify = Callable[[str], Mapping[str, float]]
_MASK = "*"  # where there are no lists that name one
Turns = Sequence[tuple[int, Turn]]  # with their places in the prompt


@dataclass(frozen=True)
class Finding:
    """What a check found. `detail` is for operators; `found` and `limit` stand in the reply."""

    action: str = ALLOW
    reason: str = "clean"
    detail: str = ""
    signals: Mapping[str, float] = field(default_factory=dict)
    spans: Mapping[int, list[Span]] = field(default_factory=dict)  # by turn, for MASK
    found: str = ""
    limit: str = ""
    lines: tuple[str, ...] = ()  # of the lists, that it was found by, such as deny/names.txt:12


NO_FINDING = Finding()


class BudgetExceeded(Exception):
    """The classifier answered after its budget, or rests; `finding` is what it said, if it did."""

    def __init__(self, why: str, finding: Finding | None = None) -> None:
        super().__init__(why)
        self.finding = finding


class Sources:
    """What the checks look things up in. The finders are made once for each version of the compiled lists."""

    def __init__(
        self, newest: NewestTable | None, classify: Classify | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.classify = classify
        self.clock = clock
        self.rests_until = 0.0
        self._newest = newest
        self._words: WordFinder | None = None
        self._patterns: PatternScanner | None = None

    @property
    def has_lists(self) -> bool:
        return self._newest is not None

    @property
    def version(self) -> str:
        """Of the lists that were last used."""
        return self._words.table.version if self._words else ""

    @property
    def mask(self) -> str:
        """What stands for a hidden character: as the lists say, where there are any."""
        return self._words.table.mask if self._words else _MASK

    def table(self) -> WordTable:
        return self.words().table

    def words(self) -> WordFinder:
        """Raises BadWordTable."""
        assert self._newest is not None
        table = self._newest.table()
        if self._words is None or self._words.table is not table:
            self._words, self._patterns = WordFinder(table), None
        return self._words

    def patterns(self) -> PatternScanner:
        """Raises BadWordTable."""
        table = self.table()
        if self._patterns is None:
            self._patterns = PatternScanner(*table.patterns)
        return self._patterns


def limits(check: Any, turns: Turns, sources: Sources) -> Finding:
    """Characters and bytes of all turns together, and their number."""
    assert isinstance(check, Limits)
    texts = [turn.text for _, turn in turns]
    if len(turns) > check.max_messages:
        return _over("too_many_messages", str(len(turns)), str(check.max_messages))
    if (characters := sum(map(len, texts))) > check.max_characters:
        return _over("too_long", f"{characters} characters", f"{check.max_characters}")
    if characters * 4 <= check.max_bytes:
        return NO_FINDING
    if (size := sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)) > check.max_bytes:
        return _over("too_long", f"{size} bytes", f"{check.max_bytes}")
    return NO_FINDING


def _over(reason: str, found: str, limit: str) -> Finding:
    return Finding(REFUSE, reason, f"{found} > {limit}", found=found, limit=limit)


def repetition(check: Any, turns: Turns, sources: Sources) -> Finding:
    """Each turn by itself."""
    assert isinstance(check, Repetition)
    for _, turn in turns:
        if len(turn.text) >= check.min_characters:
            share = repeated_share(turn.text.encode("utf-8", "surrogatepass"), check.new_share)
            if share >= check.repeated_share:
                return Finding(REFUSE, "repetition", f"{share:.2f} of {len(turn.text)} characters")
    return NO_FINDING


def words(check: Any, turns: Turns, sources: Sources) -> Finding:
    """Words of the lists, each category by its own action; one that leads to another route is a signal."""
    assert isinstance(check, Words)
    finder = sources.words()
    actions = {**finder.table.prompt, **check.on_hit}
    spans = {place: finder.spans(turn.text) for place, turn in turns}
    routing = dict.fromkeys(span.name for found in spans.values() for span in found if actions[span.name] == ROUTE)
    signals = {f"word_{name}": 1.0 for name in routing}
    finding = _of_spans("word_", actions, spans)
    if signals and finding.action == ALLOW:
        routed = [span for found in spans.values() for span in found if span.name in routing]
        return Finding(ROUTE, next(iter(signals)), " ".join(routing), signals, lines=_lines_of(routed))
    return replace(finding, signals=signals)


def personal_data(check: Any, turns: Turns, sources: Sources) -> Finding:
    """Personal data, each kind by its own action."""
    assert isinstance(check, PersonalData)
    kinds = [kind for kind, action in check.on_hit.items() if action != ALLOW]
    spans = {place: personal_spans(turn.text, kinds, check.masks) for place, turn in turns}
    return _of_spans("", check.on_hit, spans)


def _of_spans(prefix: str, actions: Mapping[str, str], spans: Mapping[int, list[Span]]) -> Finding:
    """The worst that any span asks for. Without a prefix all have one reason: personal_data."""
    for action in (REFUSE, MASK):
        kept = {place: [span for span in found if actions[span.name] == action] for place, found in spans.items()}
        hits = [span for found in kept.values() for span in found]
        names = [span.name for span in hits]
        if names:
            detail = " ".join(f"{name}:{names.count(name)}" for name in dict.fromkeys(names))
            reason = prefix + names[0] if prefix else "personal_data"
            return Finding(action, reason, detail, spans=kept if action == MASK else {}, lines=_lines_of(hits))
    return NO_FINDING


def _lines_of(spans: Iterable[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line_name("deny", span.name, span.line) for span in spans if span.line))


def patterns(check: Any, turns: Turns, sources: Sources) -> Finding:
    """Patterns of attacks; what leads to another route is also a signal."""
    assert isinstance(check, Patterns)
    scanner = sources.patterns()
    found = [
        match
        for _, turn in turns
        for match in scanner.find(turn.text)
        if turn.role != PLAIN or match.family not in check.plain_may_hold
    ]
    return _of_matches(check.on_hit, found)


def _of_matches(on_hit: Mapping[str, str], found: Sequence[Match]) -> Finding:
    for action in (REFUSE, ROUTE):
        for family, line in found:
            if on_hit.get(family, on_hit.get("*", ALLOW)) == action:
                signals = {f"prompt_{family}": 1.0} if action == ROUTE else {}
                lines = (line_name("patterns", family, line),)
                return Finding(action, f"prompt_{family}", f"{family}.txt:{line}", signals, lines=lines)
    return NO_FINDING


def hidden(check: Any, turns: Turns, sources: Sources) -> Finding:
    """What is in disguise and, in plain sight, would be refused by a word or a pattern."""
    assert isinstance(check, Hidden)
    found = [each for _, turn in turns for each in hidden_texts(turn.text)]
    for action in (REFUSE, ROUTE):
        for kind, text in found:
            if check.on_hit.get(kind, ALLOW) == action and (found_by := _refusable(text, sources)):
                reason = f"hidden_{kind}"
                what, *lines = found_by
                return Finding(action, reason, what, {reason: 1.0} if action == ROUTE else {}, lines=tuple(lines))
    return NO_FINDING


def _refusable(text: str, sources: Sources) -> Sequence[str]:
    """A detail and the line of a list, or nothing."""
    for family, line in sources.patterns().find(text):
        return f"{family}.txt:{line}", line_name("patterns", family, line)
    finder = sources.words()
    for span in finder.spans(text):
        if finder.table.prompt[span.name] == REFUSE:
            return span.name, *_lines_of([span])
    return ()


def script(check: Any, turns: Turns, sources: Sources) -> Finding:
    """The scripts of the last user's turn."""
    text = next((turn.text for _, turn in reversed(turns) if turn.role in (USER, PLAIN)), "")
    return Finding(signals={f"script_{name}": share for name, share in script_shares(text).items()})


def classifier(check: Any, turns: Turns, sources: Sources) -> Finding:
    """Asks once, with the newest turn first. Raises BudgetExceeded, or what the classifier raises."""
    assert isinstance(check, Classifier)
    if sources.classify is None:
        raise EngineUnavailable("there is no classifier")
    if check.on_failure == OPEN and sources.clock() < sources.rests_until:
        raise BudgetExceeded("it rests")
    text = "\n\n".join(turn.text for _, turn in reversed(turns) if turn.text)[: check.max_characters]
    if not text:
        return NO_FINDING
    start = sources.clock()
    try:
        scores = sources.classify(text)
    except Exception:
        sources.rests_until = sources.clock() + check.rest_seconds
        raise
    finding = _of_scores(check, scores)
    parts = 1 + len(text.encode("utf-8", "surrogatepass")) // BUDGET_BYTES
    if (sources.clock() - start) * 1000 > check.budget_ms * parts:
        sources.rests_until = sources.clock() + check.rest_seconds
        raise BudgetExceeded(f"{(sources.clock() - start) * 1000:.0f} ms", finding)
    return finding


def _of_scores(check: Classifier, scores: Mapping[str, float]) -> Finding:
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    signals = {label: round(score, 4) for label, score in ranked if score >= check.route_from.get(label, 2)}
    for label, score in ranked:
        if score >= check.refuse_from.get(label, 2):
            return Finding(REFUSE, f"classifier_{label}", f"{score:.3f}", signals)
    for label, score in signals.items():
        return Finding(ROUTE, f"classifier_{label}", f"{score:.3f}", signals)
    return NO_FINDING


Finder = Callable[[Any, Turns, Sources], Finding]

FINDERS: dict[str, Finder] = {
    "limits": limits,
    "repetition": repetition,
    "words": words,
    "patterns": patterns,
    "hidden": hidden,
    "personal_data": personal_data,
    "script": script,
    "classifier": classifier,
}


def looked_at(check: Check, turns: Sequence[Turn], trusted: Sequence[str] = ()) -> Iterator[tuple[int, Turn]]:
    """The turns that a check is meant for, with the roles of one who is trusted."""
    skipped = check.skip_roles if check.looks_at_trusted else (*check.skip_roles, *trusted)
    return ((place, turn) for place, turn in enumerate(turns) if turn.role not in skipped)
