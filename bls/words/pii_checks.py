"""What the patterns of personal data can't tell: check digits, dates, numbering plans, issuers of cards.

Each check takes a text that has the shape of its kind, and what stands before it, and returns how many characters of it
are such data: mostly all or 0.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cache

from bls.words.national_phones import labelled
from bls.words.phone_plans import PLANS

# First digits and lengths of the cards of each network (ISO/IEC 7812): ranges of their first four digits.
_ISSUERS = (
    (4000, 4999, (13, 16, 19)), (5100, 5599, (16,)), (2221, 2720, (16,)), (3400, 3499, (15,)), (3700, 3799, (15,)),
    (6200, 6299, (16, 17, 18, 19)), (6011, 6011, (16, 19)), (6440, 6599, (16, 19)), (3528, 3589, (16, 17, 18, 19)),
    (3000, 3059, (14, 16, 19)), (3095, 3095, (14, 16, 19)), (3600, 3699, (14, 16, 19)), (3800, 3999, (14, 16, 19)),
    (2200, 2204, (16, 17, 18, 19)), (6000, 6010, (16,)), (6012, 6099, (16,)),
    (5000, 5099, (13, 14, 15, 16, 17, 18, 19)),
    (5600, 5899, (13, 14, 15, 16, 17, 18, 19)), (6300, 6399, (13, 14, 15, 16, 17, 18, 19)),
    (6700, 6799, (13, 14, 15, 16, 17, 18, 19)),
)  # fmt: skip
_PROVINCES = {*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66),
              71, 81, 82, 83, 91}  # fmt: skip
_MOBILE = re.compile(r"1(?:3\d|4[5-9]|5[0-35-9]|6[2567]|7[0-8]|8\d|9[0-35-9])\d{8}")
_CHINESE_LANDLINE = re.compile(r"\(0\d{2,3}\)[ -]?\d{7,8}|0\d{2,3}-\d{7,8}")
_CHINESE_AREA = re.compile(r"0(?:10|2[0-57-9]|[3-9]\d\d)[1-8]\d{6,7}")
_AMERICAN = re.compile(r"(?!2[0]0|300|400|[2-9]11|[2-9]9\d)[2-9]\d\d(?![2-9]11)[2-9]\d{6}")
_SPACED_AMERICAN = re.compile(r"\d{3} \d{3} \d{4}")
_CUE = re.compile(r"(?:phone|tel|call|mobile|cell|fax|dial|ring|sms|text|whatsapp|contact|number|ph|no)\b[^\n]*$", re.I)
_JAPANESE_OR_KOREAN = re.compile(r"0(?!0)(?:\d-\d{4}|\d\d-\d{3,4}|\d\d\d-\d{3,4})-\d{4}")
_CODE_DIGITS = 3
_FILES = frozenset(
    """
png jpg jpeg gif svg webp bmp ico pdf js ts jsx tsx css scss html htm json yaml yml toml xml txt log csv md
""".split()  # noqa: SIM905
)  # endings of files, none of which is a domain's
_LEAST_DIFFERENT = 4  # characters of a key: a row of x in a manual has one
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+([a-z]{2,24})(?![a-z0-9])", re.I | re.A)
_ADDRESS_CHARACTERS = re.compile(r"[A-Za-z0-9._%+\-]*\Z")
_SERVICE_NAMES = frozenset(("git", "hg", "svn"))  # git@host is a login that everybody has


def bank_card(text: str, before: str) -> int:
    """An issuer's first digits, its length, and Luhn's rule: the last digit makes a certain sum a multiple of ten."""
    digits = [int(character) for character in text if character.isdigit()]
    first = int("".join(map(str, digits[:4])))
    if not any(low <= first <= high and len(digits) in sizes for low, high, sizes in _ISSUERS):
        return 0
    doubled = (digit * 2 for digit in digits[-2::-2])
    total = sum(digits[-1::-2]) + sum(digit // 10 + digit % 10 for digit in doubled)
    return len(text) if total % 10 == 0 else 0


def chinese_id(text: str, before: str) -> int:
    """18 characters: province, a date of birth that exists, a serial number, and GB 11643's check character."""
    characters = [character for character in text if character.isalnum()]
    year, month, day = ("".join(characters[first:last]) for first, last in ((6, 10), (10, 12), (12, 14)))
    if int("".join(characters[:2])) not in _PROVINCES:
        return 0
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return 0
    total = sum(int(character) * pow(2, 17 - place, 11) for place, character in enumerate(characters[:17]))
    return len(text) if "10X98765432"[total % 11] == characters[17].upper() else 0


def phone(text: str, before: str) -> int:
    """A number that its country's plan has, and that is written like one."""
    if text.startswith("+"):
        return _international(text)
    text = text.rstrip(" .()/-")
    digits = "".join(filter(str.isdigit, text)).removeprefix("0086")
    if text.startswith(("0", "(0")) and (size := labelled(text, before)):
        return size
    if _are_amounts(re.findall(r"\d+", text)):
        return 0
    if _SPACED_AMERICAN.fullmatch(text):  # three amounts look the same
        return len(text) if _CUE.search(before) and _AMERICAN.fullmatch(digits) else 0
    is_chinese = _CHINESE_LANDLINE.fullmatch(text) and _CHINESE_AREA.fullmatch(digits)
    known = is_chinese or _MOBILE.fullmatch(digits) or _JAPANESE_OR_KOREAN.fullmatch(text)
    return len(text) if known or (text[0] != "0" and _AMERICAN.fullmatch(digits)) else 0


def _international(text: str) -> int:
    """The longest of its beginnings, up to a border of groups, that is a number of the country that it names."""
    borders = [match.start() for match in re.finditer(r"(?<=\d)[^\d]", text)]
    for end in (len(text), *reversed(borders)):
        groups = re.findall(r"\d+", text[1:end].replace("(0)", ""))
        if len(groups) == 2 and "." in text[:end]:
            continue  # a decimal fraction
        digits = "".join(groups)
        for size in range(1, _CODE_DIGITS + 1):
            code, national = digits[:size], digits[size:]
            if len(groups[0]) >= size and code in PLANS and _plan(code).fullmatch(national):
                is_amount = len(groups) > 1 and _are_amounts([groups[0][size:] or "0", *groups[1:]])
                return 0 if is_amount else end
    return 0


def _are_amounts(groups: list[str]) -> bool:
    """Whether the groups are round, as in 250 300 4000; a number without groups is if it ends in many zeros."""
    if len(groups) == 1:
        return groups[0].endswith("000000")
    return all(group.endswith("0") for group in groups) or all(group.endswith("00") for group in groups[1:])


@cache
def _plan(code: str) -> re.Pattern[str]:
    return re.compile(PLANS[code])


def email(text: str, before: str) -> int:
    """An address with a domain's labels, not a file such as icon@2x.png or a login such as git@host."""
    local, _, domain = text.rpartition("@")
    found = _DOMAIN.match(domain)  # not all of it, where an ellipsis follows
    if found is None or ".." in local:
        return 0
    whole_local = _ADDRESS_CHARACTERS.search(before)[0] + local  # type: ignore[index]  # it matches nothing too
    is_none = found[1].lower() in _FILES or whole_local in _SERVICE_NAMES
    return 0 if is_none else len(local) + len("@") + found.end()


def api_key(text: str, before: str) -> int:
    """Something random: letters and digits, not a name made of words."""
    if text.startswith("eyJ"):
        return len(text)
    secret = re.split(r"^(?:sk[-_](?:live_|proj-|ant-)?|gh[pousr]_|github_pat_|xox.-|hf_|glpat-|nvapi-|npm_)", text)[-1]
    is_mixed = any(map(str.isdigit, secret)) or (secret.lower() != secret and secret.upper() != secret)
    is_words = not is_mixed and ("-" in secret or "_" in secret)
    return len(text) if not is_words and len(set(secret)) >= _LEAST_DIFFERENT and "EXAMPLE" not in text else 0
