"""Where words begin and end in each script, by Unicode's own properties: what scripts/build_tables.py writes of it.

The properties are those of UAX 29 (word and grapheme breaks) and UAX 14 (line breaks), as the package regex has them.
"""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

# Line break classes of scripts whose words have no spaces between them: Thai, Lao, Khmer, Myanmar, Balinese ...
UNSPACED_LINE_BREAKS = ("SA", "AK", "AP", "AS", "VI", "VF")
CHINESE_AND_NEIGHBOURS = ("Han", "Hiragana", "Katakana", "Hangul", "Bopomofo")
# What tells a letter from another in these scripts is often left out, or the keyboard can't type it.
SCRIPTS_WITH_OPTIONAL_MARKS = ("Greek", "Arabic", "Hebrew", "Syriac")
VOICING = "\u3099\u309a"
STROKE = "\u0335"  # for what is part of the letter to Unicode: the stroke of a d, an i without its dot
CEDILLA, COMMA_BELOW = "\u0327", "\u0326"  # one sign in Romanian and Turkish, in two fonts


def borders(characters: Iterable[str], is_letter: Callable[[str], bool]) -> dict[str, list[str]]:
    """The characters of each class of borders; `is_letter` tells what is compared at all."""
    classes: dict[str, list[str]] = {name: [] for name in ("cjk", "word", "hangul", "katakana", "extends")}
    for character in characters:
        if character in VOICING or (is_letter(character) and not character.isascii()):
            for name in classes_of(character):
                classes[name].append(character)
        elif character.isascii() and character.isalnum():
            classes["word"].append(character)
    return classes


def classes_of(character: str) -> list[str]:
    """The names of the classes that a letter is in, of those of `borders`."""
    cjk = is_cjk(character)
    found = ["cjk"] if cjk else []
    if character in VOICING:
        found.append("katakana")
    elif has(character, r"\p{Script=Hangul}"):
        found.append("hangul")
    elif has(character, r"\p{Word_Break=Katakana}"):
        found.append("katakana")
    elif not cjk and not is_unspaced(character) and (is_word_letter(character) or is_sign_of_letter(character)):
        found.append("word")
    if (
        character in VOICING
        or has(character, r"[\p{Grapheme_Cluster_Break=V}\p{Grapheme_Cluster_Break=T}]")
        or (
            is_unspaced(character)
            and has(character, r"[\p{Grapheme_Cluster_Break=Extend}\p{Grapheme_Cluster_Break=SpacingMark}]")
        )
    ):
        found.append("extends")
    return found


def is_cjk(character: str) -> bool:
    """Chinese, Japanese and Korean letters: a separator between two of them is an evasion."""
    scripts = "".join(rf"\p{{Script={name}}}" for name in CHINESE_AND_NEIGHBOURS)
    if unicodedata.category(character)[0] not in "LN":
        return character in VOICING
    return has(character, f"[{scripts}]") or has(character, r"[\p{Word_Break=Katakana}\p{Script_Extensions=Han}]")


def is_unspaced(character: str) -> bool:
    """Whether its script puts no spaces between words and marks no borders by kinds of letters either."""
    return has(character, "[" + "".join(rf"\p{{Line_Break={name}}}" for name in UNSPACED_LINE_BREAKS) + "]")


def is_word_letter(character: str) -> bool:
    return has(character, r"[\p{Word_Break=ALetter}\p{Word_Break=Hebrew_Letter}\p{Word_Break=Numeric}]")


def is_sign_of_letter(character: str) -> bool:
    """A vowel sign, which is a mark to Unicode."""
    return unicodedata.category(character) in ("Mn", "Mc")


def with_marks(character: str, is_mark: Callable[[str], bool]) -> str | None:
    """A letter and the marks that tell it from the plain one, canonically ordered; None where it has none that count.

    An i with a dot is an i, and a Russian ё is written е by most.
    """
    if character in "\u0130\u0401\u0451" or has(character, script_class(SCRIPTS_WITH_OPTIONAL_MARKS)):
        return None
    base, *marks = list(unicodedata.normalize("NFD", character))
    if marks and all(is_mark(mark) or mark in VOICING for mark in marks):
        return base + "".join(marks).replace(COMMA_BELOW, CEDILLA)
    words = unicodedata.name(character, "").split(" ")
    if character == "\u0131":
        return "i" + STROKE
    if not marks and words[0] == "LATIN" and words[4:5] == ["WITH"] and len(words[3]) == 1:
        return (words[3] if words[1] == "CAPITAL" else words[3].lower()) + STROKE
    return None


def script_class(names: Iterable[str]) -> str:
    return "[" + "".join(rf"\p{{Script={name}}}" for name in names) + "]"


def has(character: str, expression: str) -> bool:
    return bool(_pattern(expression).match(character))


@cache
def _pattern(expression: str) -> Any:
    import regex

    return regex.compile(expression)
