"""The kinds of personal data, as patterns: sequences of character classes with bounded counts.

Two regular expressions are made of each kind: the whole pattern, and its beginnings at the end of the text. By the
second a stream knows what it can't decide yet, so the two must come from one source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from bls.words import pii_checks
from bls.words.national_phones import grouped

Check = Callable[[str, str], int]
CONTEXT = 24  # characters before a match that its check sees
Atom = tuple[str, int, int]  # the inside of a character class, at least, at most
Sequence = list[Atom]

_GAP = " -"


def _literal(text: str) -> Sequence:
    return [(re.escape(character), 1, 1) for character in text]


def _digits(low: int, high: int | None = None) -> Atom:
    return "0-9", low, high or low


def _maybe(characters: str, most: int = 1) -> Atom:
    return characters, 0, most


_CHINESE_MOBILE: Sequence = [
    ("1", 1, 1), ("3-9", 1, 1), _digits(1), _maybe(_GAP), _digits(4), _maybe(_GAP), _digits(4),
]  # fmt: skip
_AMERICAN_TAIL: Sequence = [("2-9", 1, 1), _digits(2), (" .-", 1, 1), _digits(4)]
# E.164: up to 15 digits. The longest first, as a shorter one may be the beginning of it.
_INTERNATIONAL: list[Sequence] = [
    [*_literal("+"), ("1-9", 1, 1), *[_maybe(r" .()\-", 2), _digits(1)] * (size - 1)] for size in range(15, 7, -1)
]
# 9 to 12 digits, and perhaps what stands behind them, which the check leaves out.
_NATIONAL: list[Sequence] = [
    [
        *opening,
        ("0", 1, 1),
        ("1-9", 1, 1),
        *[_maybe(r" .()/\-", 2), _digits(1)] * 7,
        *[_maybe(r" .()/\-", 2), _maybe("0-9")] * 3,
    ]
    for opening in ([], _literal("("))
]
_BEFORE_NUMBER = r"(?<![0-9A-Za-z+])(?<![0-9][.,])"
_KEY, _PLAIN_KEY = "A-Za-z0-9_-", "A-Za-z0-9"


class Kind(NamedTuple):
    """One kind of personal data. `check` is one of bls.words.pii_checks: of a match, how much counts."""

    sequences: list[Sequence]
    before: str = r"(?<![0-9A-Za-z])"
    after: str = r"(?![0-9A-Za-z])"
    check: Check = lambda text, before: len(text)
    starts_with_letters: bool = False


KINDS: dict[str, Kind] = {
    "email": Kind(
        [[("A-Za-z0-9", 1, 1), (r"A-Za-z0-9._%+\-", 0, 63), ("@", 1, 1), ("A-Za-z0-9", 1, 1),
          (r"A-Za-z0-9.\-", 0, 252), (".", 1, 1), ("A-Za-z", 2, 24)]],
        check=pii_checks.email,
        before="",  # of a longer run before the @, the last 64 characters are the address
    ),
    "phone": Kind(
        [
            [*_literal("+86"), _maybe(_GAP), *_CHINESE_MOBILE],
            [*_literal("0086"), _maybe(_GAP), *_CHINESE_MOBILE],
            _CHINESE_MOBILE,
            [*_literal("(0"), _digits(2, 3), *_literal(")"), _maybe(_GAP), _digits(7, 8)],
            [*_literal("0"), _digits(2, 3), ("-", 1, 1), _digits(7, 8)],
            [*_literal("0"), _digits(1, 3), ("-", 1, 1), _digits(3, 4), ("-", 1, 1), _digits(4)],  # Japan, Korea
            *_NATIONAL,
            *_INTERNATIONAL,
            [("(", 1, 1), ("2-9", 1, 1), _digits(2), (")", 1, 1), _maybe(_GAP), *_AMERICAN_TAIL],
            [("2-9", 1, 1), _digits(2), (" .-", 1, 1), *_AMERICAN_TAIL],
        ],
        before=_BEFORE_NUMBER,
        check=pii_checks.phone,
    ),
    "national_phone": Kind(_NATIONAL, before=_BEFORE_NUMBER, check=grouped),
    "cn_id": Kind(
        [[("1-9", 1, 1), _digits(5), _maybe(_GAP), ("12", 1, 1), ("09", 1, 1), _digits(6), _maybe(_GAP), _digits(3),
          ("0-9Xx", 1, 1)]],
        check=pii_checks.chinese_id,
    ),
    "bank_card": Kind(
        [
            [("2-6", 1, 1), _digits(12, 18)],
            [("2-6", 1, 1), _digits(3), *[(_GAP, 1, 1), _digits(4)] * 3, _maybe(_GAP), _maybe("0-9", 3)],
            [("3", 1, 1), _digits(3), (_GAP, 1, 1), _digits(6), (_GAP, 1, 1), _digits(5)],
        ],
        check=pii_checks.bank_card,
    ),
    "api_key": Kind(
        [
            [*_literal("sk-"), (_KEY, 20, 200)],
            [*_literal("sk_live_"), (_PLAIN_KEY, 20, 100)],
            [*_literal("gh"), ("pousr", 1, 1), ("_", 1, 1), (_PLAIN_KEY, 36, 100)],
            [*_literal("github_pat_"), ("A-Za-z0-9_", 50, 100)],
            [("A", 1, 1), ("KS", 1, 1), *_literal("IA"), ("A-Z0-9", 16, 16)],
            [*_literal("AIza"), (_KEY, 35, 35)],
            [*_literal("xox"), ("abprs", 1, 1), ("-", 1, 1), (r"A-Za-z0-9\-", 20, 200)],
            [*_literal("hf_"), (_PLAIN_KEY, 30, 60)],
            [*_literal("glpat-"), (_KEY, 20, 60)],
            [*_literal("nvapi-"), (_KEY, 40, 100)],
            [*_literal("npm_"), (_PLAIN_KEY, 36, 36)],
            [*_literal("eyJ"), (_KEY, 8, 200), *_literal(".eyJ"), (_KEY, 8, 400), (".", 1, 1), (_KEY, 8, 200)],
        ],
        check=pii_checks.api_key,
        after="",  # of a longer one, as much as is known to be a key
        starts_with_letters=True,
    ),
}  # fmt: skip


def longest(kind: str) -> int:
    """Characters that a match of this kind has at most: the bound of what is held for it."""
    return max(sum(most for _, _, most in sequence) for sequence in KINDS[kind].sequences)


def _whole(sequence: Sequence) -> str:
    return "".join(f"[{characters}]{{{low},{high}}}" for characters, low, high in sequence)


def _beginning(sequence: Sequence) -> str:
    """The sequence, or as much of it as there is, up to the end of the text."""
    (characters, low, high), *rest = sequence
    open_end = rf"[{characters}]{{0,{high}}}\Z"
    return rf"(?:{open_end}|[{characters}]{{{low},{high}}}{_beginning(rest)})" if rest else open_end


def _hint(kind: Kind) -> str:
    """What every match and every beginning starts with: by one character, or by two where one is too common."""
    firsts = "".join(dict.fromkeys(sequence[0][0] for sequence in kind.sequences))
    if not kind.starts_with_letters:
        return f"[{firsts}]"
    pairs = (rf"[{first}](?:[{second}]|\Z)" for (first, _, _), (second, _, _), *_ in kind.sequences)
    return "|".join(dict.fromkeys(pairs))


class Compiled(NamedTuple):
    hint: re.Pattern[str]  # without it there is neither a match nor a beginning; several times faster to look for
    whole: re.Pattern[str]
    beginning: re.Pattern[str]
    check: Check


def compiled(kind: Kind) -> Compiled:
    whole = "|".join(map(_whole, kind.sequences))
    beginning = "|".join(map(_beginning, kind.sequences))
    return Compiled(
        re.compile(_hint(kind)),
        re.compile(f"{kind.before}(?:{whole}){kind.after}"),
        re.compile(f"{kind.before}(?!\\Z)(?:{beginning})"),
        kind.check,
    )


COMPILED = {name: compiled(kind) for name, kind in KINDS.items()}


@cache
def any_hint(names: tuple[str, ...]) -> re.Pattern[str]:
    """The hints of all these kinds in one pattern: most pieces of a text hold none of them."""
    return re.compile("|".join(f"(?:{COMPILED[name].hint.pattern})" for name in names))
