"""Looks at a prompt before any engine does: refused, masked, sent another way, or allowed, with one word why.

    safety = PromptSafety(newest_table, classify)
    judging = safety.begin(policy.SAFETY, request.text, request.messages, request.apply_chat_template)
    judging.verdict     # by the rules
    judging.final()     # by the classifier too, which is asked beside whatever happens in between

The checks run in the order of the table; the first that refuses ends it. Else masks win over routes, and all signals
stay. A check that breaks does what the table says of it, and no one else hears of it but the log and `checks`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from bls.errors import RouterError
from bls.safety.beside import Beside
from bls.safety.checks import FINDERS, BudgetExceeded, Classify, Finder, Finding, Sources, Turns, looked_at
from bls.safety.mask import Span, masked
from bls.safety.script import is_chinese
from bls.safety.settings import (
    ALLOW,
    CLOSED,
    MASK,
    OPEN,
    REFUSE,
    ROUTE,
    Check,
    Classifier,
    Limits,
    PersonalData,
    Safety,
    Words,
)
from bls.tokens.messages import PLAIN, USER, Turn, turns_of, written
from bls.words.table import BadWordTable, NewestTable

log = logging.getLogger(__name__)

_NEED_LISTS = ("words", "patterns", "hidden")
# Two letters of a word, with another word between them, are that word when the other is masked. Once more than that is
# on purpose.
_MAX_ROUNDS = 4
_JSON_PER_CHARACTER = 6  # at most: \\uXXXX
_JSON_PER_MESSAGE = 200
_BUDGETS_WAITED = 20  # for the classifier's answer, which counts although its budget is spent
_TELL_AGAIN_SECONDS = 60.0  # after which a check that still breaks is logged again


class CheckRun(NamedTuple):
    """One check: its outcome ("clean", "refuse", "mask", "route", "failed", "late", "off"), details, microseconds."""

    name: str
    outcome: str
    detail: str
    microseconds: float


@dataclass(frozen=True)
class Verdict:
    """What is done with a prompt. `reason` is one word for response, log and metric."""

    action: str = ALLOW
    reason: str = "clean"
    text: str | None = None  # for MASK: the plain prompt rewritten,
    messages: str | None = None  # or the chat messages, as JSON
    reply: str = ""  # for REFUSE: what the client is told
    signals: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[CheckRun, ...] = ()
    version: str = ""  # of the word lists and patterns that decided
    lines: tuple[str, ...] = ()  # of those, that were hit, such as deny/names.txt:12

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that could not decide."""
        return tuple(dict.fromkeys(run.name for run in self.checks if run.outcome in ("failed", "late")))


class Judging(Protocol):
    """A prompt whose rules have been checked, and whose classifier may still be at work."""

    @property
    def verdict(self) -> Verdict:
        """What is known by now. What it refuses is refused; what it masks is masked in the end too."""

    @property
    def is_open(self) -> bool:
        """Whether `final` may say something else, since the classifier has not answered yet."""

    def final(self) -> Verdict:
        """Waits for the classifier, if there is something to wait for."""


@dataclass(frozen=True)
class Unjudged:
    """The Judging where there are no checks."""

    verdict: Verdict = field(default_factory=Verdict)
    is_open: bool = False

    def final(self) -> Verdict:
        return self.verdict


class PromptSafety:
    """Judges prompts, one at a time, each by the table that is given with it.

    Without `newest_table` the lists' checks are off. Without `classify` the classifier's fails, as the table says.
    With `beside`, a classifier that ends the table is asked there, while the request goes on.
    """

    def __init__(
        self,
        newest_table: NewestTable | None = None,
        classify: Classify | None = None,
        finders: Mapping[str, Finder] = FINDERS,
        clock: Callable[[], float] = time.monotonic,
        beside: Beside | None = None,
    ) -> None:
        self._beside = beside
        self._sources = Sources(newest_table, classify, clock)
        self._finders = finders
        self._tell_again: dict[tuple[str, str], float] = {}

    def warm_up(self) -> None:
        """Makes now what the first prompt would wait some 20 ms for. Raises BadWordTable."""
        if self._sources.has_lists:
            self._sources.patterns()

    def judge(
        self,
        settings: Safety,
        text: str = "",
        messages: str = "",
        apply_chat_template: bool = True,
        tenant: str = "",
    ) -> Verdict:
        """The verdict on a plain prompt or on chat messages (a JSON list). Raises BadRequest for malformed messages.

        Without a chat template a plain text is a whole prompt of the client's own making.
        """
        return self.begin(settings, text, messages, apply_chat_template, tenant).final()

    def begin(
        self,
        settings: Safety,
        text: str = "",
        messages: str = "",
        apply_chat_template: bool = True,
        tenant: str = "",
    ) -> Judging:
        """As `judge`, for a caller with something else to do until the classifier has answered."""
        judging = _Judging(settings, settings.trusts(tenant), self._sources, self._finders, self._tell, self._beside)
        judging.begin(text, messages, USER if apply_chat_template else PLAIN)
        return judging

    def _tell(self, check: Check, error: Exception) -> None:
        """Logs what broke, with its stack the first time and then once a minute."""
        key, now = (check.name, type(error).__name__), self._sources.clock()
        if now >= self._tell_again.get(key, now):
            expected = isinstance(error, RouterError | BadWordTable) or key in self._tell_again
            # A server may well do without a classifier, and the metrics count it.
            level = logging.INFO if isinstance(error, RouterError) and check.on_failure == OPEN else logging.ERROR
            log.log(level, "the prompt's %s check failed: %s", check.name, str(error) or key[1], exc_info=not expected)
            self._tell_again[key] = now + _TELL_AGAIN_SECONDS


class _Judging:
    """One prompt on its way through the table."""

    def __init__(
        self,
        settings: Safety,
        trusted: Sequence[str],
        sources: Sources,
        finders: Mapping[str, Finder],
        tell: Callable[[Check, Exception], None],
        beside: Beside | None,
    ) -> None:
        self.verdict = Verdict()
        self._beside = beside
        self._pending: tuple[Classifier, futures.Future[tuple[CheckRun, Finding]] | None] | None = None
        self._trusted = trusted
        self._settings, self._sources, self._finders, self._tell = settings, sources, finders, tell
        self._turns: list[Turn] = []
        self._messages = ""
        self._runs: list[CheckRun] = []
        self._signals: dict[str, float] = {}
        self._lines: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        return self._pending is not None

    def begin(self, text: str, messages: str, role: str) -> None:
        """Runs the checks; a classifier that is the last of them goes on beside."""
        self.verdict = self._of_rules(text, messages, role)

    def final(self) -> Verdict:
        if self._pending is not None:
            (check, future), self._pending = self._pending, None
            run, finding = self._waited_for(check, future)
            self._runs.append(run)
            self.verdict = self._with_last(check, finding)
        return self.verdict

    def _waited_for(
        self, check: Classifier, future: futures.Future[tuple[CheckRun, Finding]] | None
    ) -> tuple[CheckRun, Finding]:
        """What the classifier found; one that is frozen must not hold its request for ever, nor those that follow."""
        seconds = check.budget_ms / 1000 * _BUDGETS_WAITED
        try:
            if future is not None:
                return future.result(seconds)
            detail = "an earlier call has not come back"
        except futures.TimeoutError:
            detail = f"no answer in {seconds:g} s"
        finding = Finding(detail=detail)
        if check.on_failure == CLOSED:
            finding = Finding(REFUSE, f"{check.name}_unavailable", detail)
        return CheckRun(check.name, "late", detail, seconds * 1e6 if future is not None else 0.0), finding

    def _with_last(self, check: Check, finding: Finding) -> Verdict:
        """The verdict once the last check has been heard, which masks nothing."""
        if finding.action == REFUSE:
            return self._refusal(check, finding)
        self._signals.update(finding.signals)
        known = replace(self.verdict, signals=dict(self._signals), checks=tuple(self._runs))
        if known.action == ALLOW and finding.action == ROUTE:
            return replace(known, action=ROUTE, reason=finding.reason)
        return known

    def _of_rules(self, text: str, messages: str, role: str) -> Verdict:
        for check in self._settings.checks:
            if isinstance(check, Limits) and (maximum := _max_json(check)) < len(messages):
                # Not even read: it would take longer than to refuse it.
                finding = Finding(REFUSE, "too_long", found=f"{len(messages)} characters of JSON", limit=str(maximum))
                return self._refusal(check, finding)
        self._turns, self._messages = turns_of(text, messages, role), messages
        findings: list[Finding] = []
        for check in self._settings.checks:
            if self._beside is not None and isinstance(check, Classifier) and check is self._settings.checks[-1]:
                # It sees the turns as they came: what is masked below is replaced, never changed.
                turns = list(looked_at(check, self._turns, self._trusted))
                self._pending = check, self._beside.start(partial(self._ran, check, turns))
                break
            finding = self._run(check)
            if finding.action == REFUSE:
                return self._refusal(check, finding)
            findings.append(finding)
            self._signals.update(finding.signals)
        masks = [finding for finding in findings if finding.action == MASK]
        if masks:
            return self._masked(masks)  # which may also refuse
        route = next((finding for finding in findings if finding.action == ROUTE), Finding())
        return self._verdict(route)

    def _run(self, check: Check) -> Finding:
        """What a check finds, noted."""
        run, finding = self._ran(check, list(looked_at(check, self._turns, self._trusted)))
        self._runs.append(run)
        self._lines |= dict.fromkeys(finding.lines)
        return finding

    def _ran(self, check: Check, turns: Turns) -> tuple[CheckRun, Finding]:
        """What a check finds; one that breaks finds what its `on_failure` says."""
        if check.name in _NEED_LISTS and not self._sources.has_lists:
            return CheckRun(check.name, "off", "no word lists", 0.0), Finding()
        start = time.perf_counter()
        outcome = ""
        try:
            finding = self._finders[check.name](check, turns, self._sources)
        except BudgetExceeded as late:
            outcome, finding = "late", late.finding or Finding(detail=str(late))
        except Exception as error:  # Whatever broke, the client must get an answer, and the one that the table names.
            self._tell(check, error)
            outcome, finding = "failed", Finding(detail=type(error).__name__)
            if check.on_failure == CLOSED:
                finding = Finding(REFUSE, f"{check.name}_unavailable", finding.detail)
        if not outcome:
            outcome = "clean" if finding.action == ALLOW else finding.action
        spent = (time.perf_counter() - start) * 1e6
        return CheckRun(check.name, outcome, finding.detail, round(spent, 1)), finding

    def _masked(self, masks: Sequence[Finding]) -> Verdict:
        """Masks, and looks again: of two letters with a masked word between them a new word may have become."""
        reason = masks[0].reason
        mask = self._sources.mask
        again = [check for check in self._settings.checks if isinstance(check, Words | PersonalData)]
        for _ in range(_MAX_ROUNDS):
            spans: dict[int, list[Span]] = {}
            for finding in masks:
                for place, found in finding.spans.items():
                    spans.setdefault(place, []).extend(found)
            for place, found in spans.items():
                self._turns[place] = Turn(self._turns[place].role, masked(self._turns[place].text, found, mask))
            findings = [(check, self._run(check)) for check in again]
            for check, finding in findings:
                if finding.action == REFUSE:
                    return self._refusal(check, finding)
            masks = [finding for _, finding in findings if finding.action == MASK]
            if not masks:
                if self._messages:
                    return self._verdict(Finding(MASK, reason), None, written(self._messages, self._turns))
                return self._verdict(Finding(MASK, reason), self._turns[0].text)
        return self._refusal(again[0], Finding(REFUSE, reason))

    def _verdict(self, finding: Finding, text: str | None = None, messages: str | None = None) -> Verdict:
        return Verdict(
            finding.action,
            finding.reason,
            text,
            messages,
            signals=dict(self._signals),
            checks=tuple(self._runs),
            version=self._sources.version,
            lines=tuple(self._lines),
        )

    def _refusal(self, check: Check, finding: Finding) -> Verdict:
        self._signals.update(finding.signals)
        chinese = is_chinese(next((turn.text for turn in reversed(self._turns) if turn.role in (USER, PLAIN)), ""))
        failed = finding.reason.endswith("_unavailable")
        names = (finding.reason, "unavailable" if failed else check.name)
        reply = self._settings.reply(names, chinese, finding.found, finding.limit)
        if finding.reason not in self._settings.replies and finding.reason.startswith("word_"):
            reply = self._sources.words().last_words(finding.reason.removeprefix("word_")) or reply
        return replace(self._verdict(finding), reply=reply)


def _max_json(check: Limits) -> int:
    """Characters of JSON that messages within the limits have at most."""
    return _JSON_PER_CHARACTER * check.max_characters + _JSON_PER_MESSAGE * check.max_messages
