"""What a character stands for when words are compared: a full-width F or a circled f is f, a zero-width space is none.

It works on one character at a time, on purpose: the result then never depends on how a text was cut into chunks. Only
the compiler of word lists reads these tables (data/, made by scripts/build_tables.py from Unicode, OpenCC and others);
what they say about every character goes into the compiled file, so all processes agree, whatever their Python.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"

# Chinese, Japanese and Korean: scripts written without spaces, so a separator inside a word is an evasion.
_CJK = (
    (0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3041, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFFDC), (0x1AFF0, 0x1B2FF),
    (0x20000, 0x3FFFF),
)  # fmt: skip

LETTER, INVISIBLE, SEPARATOR, SOFT = "letter", "invisible", "separator", "soft"


@dataclass(frozen=True)
class Folding:
    """Which differences between characters do not count. All of them, unless a category says otherwise."""

    case: bool = True
    width: bool = True  # full-width, circled, mathematical, superscript ...: what Unicode calls compatibility
    marks: bool = True  # accents and other combining marks
    invisible: bool = True  # zero-width, soft hyphen, bidirectional and other format characters
    look_alikes: bool = True  # Cyrillic, Greek ... letters and small capitals that look Latin
    traditional: bool = True  # traditional Chinese is simplified Chinese


class Normal(NamedTuple):
    """What one character becomes. `symbols` are letters to compare; a separator or an invisible one has none.

    A soft character (a symbol such as + or an emoji) is a letter and, beside a Chinese letter, also a separator.
    """

    kind: str
    symbols: str = ""


class Normaliser:
    """`of(character)` under one folding; cached, since a word list asks for the same few thousand."""

    def __init__(self, folding: Folding) -> None:
        self.folding = folding
        self._cache: dict[str, Normal] = {}

    def of(self, character: str) -> Normal:
        if (normal := self._cache.get(character)) is None:
            normal = self._cache[character] = self._work_out(character)
        return normal

    def word(self, text: str) -> str:
        """A word's symbols: separators count once, as a space, between two letters that aren't CJK; else they don't.

        Empty when nothing is left to compare.
        """
        symbols: list[str] = []
        gap = False
        for kind, letters in map(self.of, text):
            if kind == SEPARATOR:
                gap = True
            for letter in letters:
                if gap and symbols and not is_cjk(letter) and not is_cjk(symbols[-1]):
                    symbols.append(" ")
                symbols.append(letter)
                gap = False
        return "".join(symbols)

    @cached_property
    def changed(self) -> set[str]:
        """Every character that is not a plain letter standing for itself."""
        tables = _tables()
        names = ["separator", "soft", "mark", "invisible"]
        characters = {chr(point) for name in names for point in tables.ranges[name]}
        for mapping in tables.mappings.values():
            characters.update(mapping)
        return {character for character in characters if self.of(character) != Normal(LETTER, character)}

    def _work_out(self, character: str) -> Normal:
        kind = self._kind(character)
        if kind in (INVISIBLE, SEPARATOR):
            return Normal(kind)
        symbols = character
        for _ in range(2):  # a second time: a circled Greek capital is a Greek capital first
            for name in self._steps():
                mapping = _tables().mappings[name]
                symbols = "".join(mapping.get(symbol, symbol) for symbol in symbols)
        kinds = [self._kind(symbol) for symbol in symbols]
        if len(symbols) == 1:
            return Normal(kinds[0], symbols if kinds[0] in (LETTER, SOFT) else "")
        letters = "".join(symbol for symbol, kind in zip(symbols, kinds, strict=True) if kind == LETTER)
        return Normal(LETTER, letters) if letters else Normal(SEPARATOR)

    def _steps(self) -> list[str]:
        folding = self.folding
        steps = [
            (folding.width, "compatibility"),
            (folding.marks, "unmarked"),
            (folding.look_alikes, "look_alike"),  # before the case: often only a Greek capital looks Latin
            (folding.case, "case"),
            (folding.traditional, "simplified"),
        ]
        return [name for wanted, name in steps if wanted]

    def _kind(self, character: str) -> str:
        ranges = _tables().ranges
        point = ord(character)
        if point in ranges["invisible"]:
            return INVISIBLE if self.folding.invisible else LETTER
        if point in ranges["mark"]:
            return INVISIBLE if self.folding.marks else LETTER
        if point in ranges["separator"]:
            return SEPARATOR
        return SOFT if point in ranges["soft"] else LETTER


def is_cjk(symbol: str) -> bool:
    """Whether a letter is of a script written without spaces."""
    point = ord(symbol)
    return point >= 0x1100 and any(first <= point <= last for first, last in _CJK)


def spellings(word: str, normaliser: Normaliser) -> set[str]:
    """A word's symbols, however it is cased: Greek capital eta looks like H and the small one like n."""
    cased = {word}
    if normaliser.folding.case and not word.isascii():
        cased |= {word.lower(), word.upper(), word.title()}
    return {normaliser.word(form) for form in cased} - {""}


@cache
def normaliser(folding: Folding) -> Normaliser:
    """The one of this folding; what it has worked out is kept."""
    return Normaliser(folding)


class _Tables(NamedTuple):
    mappings: dict[str, dict[str, str]]
    ranges: dict[str, set[int]]


@cache
def _tables() -> _Tables:
    mappings: dict[str, dict[str, str]] = {
        "compatibility": {}, "unmarked": {}, "look_alike": {}, "case": {}, "simplified": {},
    }  # fmt: skip
    ranges: dict[str, set[int]] = {}
    # Not splitlines: some of the characters are line ends to Python.
    for line in (DATA / "characters.txt").read_text(encoding="utf-8").split("\n"):
        if not line or line.startswith("#"):
            continue
        kind, target, sources = line.split(" ", 2)
        if kind == "range":
            spans = (span.split("-") for span in sources.split(","))
            ranges[target] = {point for first, last in spans for point in range(int(first, 16), int(last, 16) + 1)}
        else:
            mappings[kind].update(dict.fromkeys(sources, target))
    return _Tables(mappings, ranges)


FOLDINGS = tuple(field.name for field in fields(Folding))
