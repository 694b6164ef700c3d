"""Phone numbers as they are written at home: `020 7946 0018`, `01.99.00.12.34`, `(02) 5550 1234`, `Tel. 030 23125001`.

A word for a phone before it lets any number of a plan count, in any grouping. Without one, the area code must be in
brackets or before a slash, and the grouping that of a country's plan. The kind `national_phone` does without those too.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from bls.words.national_plans import GROUPED, WITH_TRUNK
from bls.words.phone_plans import PLANS

# A letter with an accent is a line break here (bls.words.pii), so T.l stands for Tél.
_LABEL = re.compile(
    r"(?:\b(?:tele(?:ph|f)on[eo]?|tele?f?|t.l(?:.phone)?|phone|fone|fon|mobile?|mobiele?|cell|cellulare|handy"
    r"|gsm|fax|telp|portable|hotline|whatsapp|sms|call(?: \w+){0,2}|ring(?: \w+){0,3}|dial"
    r"|rufe?n?(?: \w+){0,3}|bel(?: mij)?(?: op)?"
    r"|appelez(?: \w+)?|joindre(?: \w+)?|erreichen(?: \w+){0,2}|reach(?: \w+){0,3}|hubungi|chiamami(?: \w+)?"
    r"|my (?:\w+ )?number|meine nummer|mon num.ro|mitt nummer|reception|contact)(?: is| ist| est)?)[^\w]{0,4}\Z",
    re.I | re.S,
)
# What numbers of goods, accounts and the like begin with.
_NO_PHONE = re.compile(
    r"(?:no|nr|num|item|parts?|art|artikel|article|sku|isbn|issn|ref|reference|order|id|serial|lot|batch|oem|model|code"
    r"|case|invoice|account|ticket|row|log|page|version|build|sire[nt]|iban|abn|upc|ean|gtin|nummer|number)\W{0,3}\Z",
    re.I,
)
Form = tuple[tuple[int, int], ...]  # of each group, from how many digits to how many
_WRITTEN = re.compile(r"\(0\d+\)[ /-]?\d+(?:[ .-]\d+)*|0\d+(?:/ ?\d+)?(?:[ .-]\d+)*")
_LEAST_DIGITS, _MOST_DIGITS = 9, 12
_LEAST_GROUPED_DIGITS, _LEAST_GROUPS = 10, 3


def labelled(text: str, before: str) -> int:
    """How many characters of a text that begins with a 0 or with (0 are a phone number, as the writer shows.

    By a word for a phone before it, or by an area code in brackets or before a slash.
    """
    if _LABEL.search(before):
        borders = [match.start() for match in re.finditer(r"(?<=\d)\D", text)]
        return next((end for end in (len(text), *reversed(borders)) if _has_a_plan(text[:end])), 0)
    return grouped(text, before) if text[0] == "(" or "/" in text else 0


def grouped(text: str, before: str) -> int:
    """The same for one that is grouped as a country groups its numbers, with nothing else to show for it."""
    text = text.rstrip(" .()/-")
    if re.search(r"\d\D{1,2}\Z", before) or _NO_PHONE.search(before) or not _WRITTEN.fullmatch(text):
        return 0
    groups = re.findall(r"\d+", text)
    is_marked = text[0] == "(" or "/" in text
    if sum(map(len, groups)) < _LEAST_GROUPED_DIGITS or (not is_marked and len(groups) < _LEAST_GROUPS):
        return 0
    if _rises(groups) or all(group.endswith("0") for group in groups) or all(group[0] == "0" for group in groups):
        return 0
    return len(text) if any(_is_grouped(country, groups) for country in GROUPED) else 0


def _has_a_plan(text: str) -> bool:
    groups = re.findall(r"\d+", text)
    number = "".join(groups)
    if not _LEAST_DIGITS <= len(number) <= _MOST_DIGITS:
        return False
    return not _rises(groups) and _with_trunk().fullmatch(number) is not None


def _rises(groups: list[str]) -> bool:
    """Whether more than three groups go up, as steps and drawn numbers do."""
    return len(groups) > _LEAST_GROUPS and all(int(one) < int(other) for one, other in pairwise(groups))


def _is_grouped(country: str, groups: list[str]) -> bool:
    numbers, forms = _grouped(country)
    sizes = [len(groups[0]) - 1, *map(len, groups[1:])]
    number = "".join(groups)[1:]
    return numbers.fullmatch(number) is not None and any(
        beginning.match(number) and _fits(sizes, form) for beginning, form in forms
    )


def _fits(sizes: list[int], form: Form) -> bool:
    if sizes[-2:] == [3, 3] and form[-1] == (6, 6):
        sizes = [*sizes[:-2], 6]  # six digits are written as two groups too
    return len(form) == len(sizes) and all(low <= size <= high for size, (low, high) in zip(sizes, form, strict=True))


@cache
def _grouped(country: str) -> tuple[re.Pattern[str], list[tuple[re.Pattern[str], Form]]]:
    code, forms = GROUPED[country]
    return re.compile(PLANS[code]), [(re.compile(beginning), form) for beginning, form in forms]


@cache
def _with_trunk() -> re.Pattern[str]:
    """Any country's number with its 0; Italy's has one of its own."""
    return re.compile("|".join([f"0(?:{PLANS[code]})" for code in WITH_TRUNK] + [PLANS["39"]]))
