"""The ways a Chinese word is written with pinyin: falungong, fa lun gong, fa轮功 ...

The words of a list are expanded when it is compiled; the text is never converted, so a reading costs nothing later.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

from bls.words.cjk import is_cjk
from bls.words.normalise import DATA

_FEWEST_APART = 4  # letters that are looked for one by one
MAX_VARIANTS = 512  # A word of nine characters has thousands of mixtures; beyond this only the likely ones are taken.


def variants(word: str, *, entire: bool) -> set[str]:
    """Spellings of a normalised word with some of its Chinese characters in pinyin, of every reading.

    All characters in pinyin only if `entire`: those are plain Latin letters, and a short one is an innocent word
    somewhere ("da an"). Syllables side by side are joined or, all of them, apart.
    """
    choices = [[symbol, *_readings().get(symbol, ())] for symbol in word]
    size = 1
    for choice in choices:
        size *= len(choice)
    spelt: list[list[str]] = [list(form) for form in product(*choices)] if size <= MAX_VARIANTS else _likely(choices)
    result: set[str] = set()
    for form in spelt:
        if entire or any(is_cjk(part) for part in form if len(part) == 1):
            result |= {_joined(form, ""), _joined(form, " ")}
        letters = "".join(form)
        if entire and letters.isascii() and len(letters) >= _FEWEST_APART:
            result.add(" ".join(letters))  # d u b o
    return result - {word}


def _likely(choices: list[list[str]]) -> list[list[str]]:
    """One character in pinyin, or all of them by their first reading."""
    plain = [choice[0] for choice in choices]
    single = [[*plain[:at], reading, *plain[at + 1 :]] for at, choice in enumerate(choices) for reading in choice[1:]]
    return [*single, [choice[min(1, len(choice) - 1)] for choice in choices]]


def _joined(parts: list[str], between_syllables: str) -> str:
    text = parts[0]
    for before, part in pairwise(parts):
        both_latin = not is_cjk(before[-1]) and not is_cjk(part[0])
        is_syllable = len(before) > 1 or len(part) > 1
        text += (between_syllables if both_latin and is_syllable else "") + part
    return text


@cache
def _readings() -> dict[str, list[str]]:
    readings: dict[str, list[str]] = {}
    for line in (DATA / "pinyin.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            syllable, characters = line.split(" ")
            for character in characters:
                readings.setdefault(character, []).append(syllable)
    return readings
