"""What the prompt's checks do, and what happens when one breaks: the policy holds such a table, read from the top.

A check that isn't in the table doesn't run. The first that refuses ends the judging; else all masks are applied and all
signals kept. `on_failure` says what a check that can't decide (a broken list, a classifier that isn't loaded) means:
"open", as if it had found nothing, or "closed", the prompt is refused.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bls.safety.replies import REPLIES

ALLOW, MASK, ROUTE, REFUSE = "allow", "mask", "route", "refuse"
OPEN, CLOSED = "open", "closed"
DISGUISES = ("base64", "hex", "percent", "invisible")
USUAL_PERSONAL_KINDS = ("email", "phone", "cn_id", "bank_card", "api_key")
PERSONAL_KINDS = (*USUAL_PERSONAL_KINDS, "national_phone")
BUDGET_BYTES = 500  # in UTF-8: some 125 tokens of any language, a window of the classifier


class BadSetting(ValueError):
    """A setting is wrong; the message names the check, the field and what it may be."""


@dataclass(frozen=True)
class Check:
    """What all checks have. A message whose role is in `skip_roles` isn't looked at; a plain prompt is a user's."""

    looks_at_trusted: ClassVar[bool] = False  # at what Safety.trusts, too: for costs, which are the same whoever writes

    on_failure: str = CLOSED
    skip_roles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return CHECK_NAMES[type(self)]

    def __post_init__(self) -> None:
        self._one_of("on_failure", self.on_failure, (OPEN, CLOSED))
        if not isinstance(self.skip_roles, tuple) or not all(isinstance(role, str) for role in self.skip_roles):
            self._wrong("skip_roles", self.skip_roles, "a tuple of roles; a single role needs a comma")

    def _wrong(self, name: str, value: object, wanted: str) -> None:
        raise BadSetting(f"{type(self).__name__}: {name} is {value!r}; it must be {wanted}")

    def _one_of(self, name: str, value: object, known: tuple[str, ...]) -> None:
        if value not in known:
            self._wrong(name, value, f"one of {', '.join(known)}")

    def _number(self, name: str, minimum: float, maximum: float) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            self._wrong(name, value, f"a number from {minimum:g} to {maximum:g}")

    def _actions(self, on_hit: object, actions: tuple[str, ...], names: tuple[str, ...] = ()) -> None:
        if not isinstance(on_hit, Mapping):
            self._wrong("on_hit", on_hit, "a dict of actions by name")
            return
        for name, action in on_hit.items():
            if names and name not in names:
                self._wrong("on_hit", name, f"one of {', '.join(names)}")
            self._one_of(f"on_hit[{name!r}]", action, actions)


@dataclass(frozen=True)
class Limits(Check):
    """How large a prompt may be, all messages together. Reasons: too_long, too_many_messages."""

    looks_at_trusted: ClassVar[bool] = True

    max_characters: int = 100_000
    max_bytes: int = 300_000  # in UTF-8
    max_messages: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("max_characters", 1, 10_000_000)
        self._number("max_bytes", 1, 40_000_000)
        self._number("max_messages", 1, 10_000)


@dataclass(frozen=True)
class Repetition(Check):
    """A long text most of which says nothing new: a block of it adds less than `new_share` to what came before."""

    looks_at_trusted: ClassVar[bool] = True

    min_characters: int = 2000  # shorter ones pass, whatever they are
    repeated_share: float = 0.6  # so much of the text
    new_share: float = 0.06  # bytes after compression for each byte before; English has some 0.45, tables 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("min_characters", 1000, 1_000_000)
        self._number("repeated_share", 0.1, 1)
        self._number("new_share", 0.03, 0.1)


@dataclass(frozen=True)
class Words(Check):
    """The word lists of words/deny. Each list's action is its `prompt` in words/categories.toml, unless named here."""

    on_hit: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._actions(self.on_hit, (REFUSE, MASK, ROUTE, ALLOW))


@dataclass(frozen=True)
class Patterns(Check):
    """The patterns of words/patterns. Actions by family (its file's name); "*" is any other.

    A plain prompt without a chat template may hold families in `plain_may_hold`: its client writes the template.
    """

    on_hit: Mapping[str, str] = field(default_factory=lambda: {"*": REFUSE})
    plain_may_hold: tuple[str, ...] = ("template",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._actions(self.on_hit, (REFUSE, ROUTE, ALLOW))


@dataclass(frozen=True)
class Hidden(Check):
    """Text in disguise, in which the two checks above find something to refuse. Actions by the kind of disguise."""

    on_hit: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(DISGUISES, REFUSE))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._actions(self.on_hit, (REFUSE, ROUTE, ALLOW), DISGUISES)


@dataclass(frozen=True)
class PersonalData(Check):
    """Kinds that aren't named aren't looked for. `masks`: what stands in place of one; "[email]" and so on."""

    on_hit: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(USUAL_PERSONAL_KINDS, MASK))
    masks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._actions(self.on_hit, (REFUSE, MASK, ALLOW), PERSONAL_KINDS)
        for kind, text in self.masks.items():
            if kind not in PERSONAL_KINDS or not isinstance(text, str):
                self._wrong("masks", {kind: text}, f"texts by kind: {', '.join(PERSONAL_KINDS)}")


@dataclass(frozen=True)
class Classifier(Check):
    """The classifier's labels, by the score from which on each counts. A label in neither has no effect.

    `budget_ms` is for each BUDGET_BYTES of text begun. An answer that comes after it still counts, but the next
    `rest_seconds` go without (fails open only).
    """

    on_failure: str = OPEN
    refuse_from: Mapping[str, float] = field(default_factory=dict)
    route_from: Mapping[str, float] = field(default_factory=dict)
    budget_ms: float = 50.0
    rest_seconds: float = 5.0
    max_characters: int = 4000  # of the newest messages: about the 1,000 tokens that the classifier reads, in English

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("budget_ms", 1, 60_000)
        self._number("rest_seconds", 0, 3600)
        self._number("max_characters", 1, 1_000_000)
        for name in ("refuse_from", "route_from"):
            for label, score in getattr(self, name).items():
                if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
                    self._wrong(f"{name}[{label!r}]", score, "a number from 0 to 1")


@dataclass(frozen=True)
class Script(Check):
    """Signals script_zh, script_ja, script_latin ...: each script's share of the letters, 0.05 and more of them."""

    on_failure: str = OPEN


Language = Script  # Its old name, for policies of the last release.

CHECK_NAMES: dict[type[Check], str] = {
    Limits: "limits",
    Repetition: "repetition",
    Words: "words",
    Patterns: "patterns",
    Hidden: "hidden",
    PersonalData: "personal_data",
    Classifier: "classifier",
    Script: "script",
}


@dataclass(frozen=True)
class Safety:
    """The table, in the order in which the checks run.

    Messages of `trusted_roles` are looked at like all others, but for those of `trusted_tenants` ("*": of everybody).
    """

    checks: tuple[Check, ...]
    replies: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: REPLIES)
    trusted_tenants: tuple[str, ...] = ()
    trusted_roles: tuple[str, ...] = ("system", "developer")

    def __post_init__(self) -> None:
        for name in ("trusted_tenants", "trusted_roles"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(each, str) and each for each in value):
                raise BadSetting(f"Safety: {name} is {value!r}; it must be a tuple of names; one name needs its comma")
        if not isinstance(self.checks, tuple) or not all(type(check) in CHECK_NAMES for check in self.checks):
            raise BadSetting(f"Safety: checks must be a tuple of {', '.join(kind.__name__ for kind in CHECK_NAMES)}")
        names = [check.name for check in self.checks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadSetting(f"Safety: {twice[0]} occurs twice")
        for reason, texts in self.replies.items():
            if not isinstance(texts, Mapping) or "en" not in texts or set(texts) - {"en", "zh"}:
                raise BadSetting(f'Safety: replies[{reason!r}] must be {{"en": text}} or {{"en": text, "zh": text}}')
            for text in texts.values():
                if not isinstance(text, str) or not _placeholders(text) <= {"found", "limit"}:
                    raise BadSetting(
                        f"Safety: replies[{reason!r}] is {text!r}; {{found}} and {{limit}} may be used in it"
                    )

    def trusts(self, tenant: str) -> tuple[str, ...]:
        """The roles whose messages are not looked at where this tenant sends them."""
        is_trusted = "*" in self.trusted_tenants or tenant in self.trusted_tenants
        return self.trusted_roles if is_trusted else ()

    def reply(self, names: tuple[str, ...], is_chinese: bool, found: str = "", limit: str = "") -> str:
        """What a client is told, by the first of `names` that has a text: one of yours, or else a shipped one."""
        tables = (self.replies, REPLIES)
        texts = next(table[name] for table in tables for name in (*names, "default") if name in table)
        return texts.get("zh" if is_chinese else "en", texts["en"]).format(found=found, limit=limit)


def _placeholders(text: str) -> set[str]:
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError:
        return {text}
