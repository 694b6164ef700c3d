"""What a character stands for when words are compared: a full-width F or a circled f is f, a zero-width space is none.

It works on one character at a time, on purpose: the result then never depends on how a text was cut into chunks. An
accented letter is its letter and its accent, a Hangul syllable its letters, so that both ways to write it are one.
Only the compiler of word lists reads these tables (data/, made by scripts/build_tables.py from Unicode, OpenCC and
others); what they say about every character goes into the compiled file, so all processes agree, whatever their Python.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from bls.words.cjk import is_cjk

DATA = Path(__file__).parent / "data"

LETTER, INVISIBLE, SEPARATOR, SOFT, MARK = "letter", "invisible", "separator", "soft", "mark"
VOICED = "voiced"  # one of VOICING by itself, which is the same as one of HIRAGANA_VOICING behind a hiragana
_FIRST_SYLLABLE, _LAST_SYLLABLE = 0xAC00, 0xD7A3
VOICING = "\u3099\u309a"  # marks that make another letter of a kana, which nobody leaves out;
HIRAGANA_VOICING = "\ue0f0\ue0f1"  # so they are called behind a hiragana, since katakana has borders and it has none


@dataclass(frozen=True)
class Folding:
    """Which differences between characters do not count. All of them, unless a category says otherwise."""

    case: bool = True
    width: bool = True  # full-width, circled, mathematical, superscript ...: what Unicode calls compatibility
    marks: bool = True  # accents and other combining marks,
    list_accents: bool = True  # but for those that a listed word has: these must be in the text
    invisible: bool = True  # zero-width, soft hyphen, bidirectional and other format characters
    look_alikes: bool = True  # Cyrillic, Greek ... letters and small capitals that look Latin
    traditional: bool = True  # traditional Chinese is simplified Chinese


class Normal(NamedTuple):
    """What one character becomes. `symbols` are letters to compare; a separator or an invisible one has none.

    A soft character (a symbol such as + or an emoji) is a letter and, beside a Chinese letter, also a separator. A mark
    is compared where a word has it, and else as invisible as it is.
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
        for kind, letters in map(self.of, unicodedata.normalize("NFC", text)):
            if kind == SEPARATOR:
                gap = True
            if kind == VOICED and symbols and "\u3041" <= symbols[-1] <= "\u309f":
                letters = HIRAGANA_VOICING[VOICING.index(letters)]
            for letter in letters if kind != MARK or symbols else "":
                if gap and kind != MARK and symbols and not is_cjk(letter) and not is_cjk(symbols[-1]):
                    symbols.append(" ")
                symbols.append(letter)
                gap = gap and kind == MARK
        return "".join(symbols)

    def is_mark(self, symbol: str) -> bool:
        """Whether a symbol is skipped in texts where no word has it."""
        return self.of(symbol).kind == MARK

    @cached_property
    def changed(self) -> set[str]:
        """Every character that is not a plain letter standing for itself."""
        tables = _tables()
        names = ["separator", "soft", "mark", "invisible"]
        characters = {chr(point) for name in names for point in tables.ranges[name]}
        for mapping in tables.mappings.values():
            characters.update(mapping)
        characters.update(map(chr, range(_FIRST_SYLLABLE, _LAST_SYLLABLE + 1)))
        return {character for character in characters if self.of(character) != Normal(LETTER, character)}

    def _work_out(self, character: str) -> Normal:
        kind = self._kind(character)
        if kind in (INVISIBLE, SEPARATOR):
            return Normal(kind)
        if kind == MARK:
            return Normal(kind, _tables().mappings["marked"].get(character, character))
        symbols = character
        if _FIRST_SYLLABLE <= ord(character) <= _LAST_SYLLABLE:
            return Normal(LETTER, unicodedata.normalize("NFD", character))
        if character in VOICING:
            return Normal(VOICED, character)
        for _ in range(2):  # a second time: a circled Greek capital is a Greek capital first
            for name in self._steps():
                mapping = _tables().mappings[name]
                symbols = "".join(mapping.get(symbol, symbol) for symbol in symbols)
        kinds = [self._kind(symbol) for symbol in symbols]
        if len(symbols) == 1:
            return Normal(kinds[0], symbols if kinds[0] in (LETTER, SOFT, MARK) else "")
        letters = "".join(symbol for symbol, kind in zip(symbols, kinds, strict=True) if kind in (LETTER, MARK))
        if letters[-1:] in VOICING and "\u3041" <= letters[0] <= "\u309f":
            letters = letters[0] + HIRAGANA_VOICING[VOICING.index(letters[-1])]
        return Normal(LETTER, letters) if letters else Normal(SEPARATOR)

    def _steps(self) -> list[str]:
        folding = self.folding
        steps = [
            (folding.width, "compatibility"),
            (folding.marks and folding.list_accents, "marked"),
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
        if character in VOICING or (point in ranges["mark"] and not self.folding.marks):
            return LETTER
        if point in ranges["mark"]:
            return MARK if self.folding.list_accents else INVISIBLE
        if point in ranges["separator"]:
            return SEPARATOR
        return SOFT if point in ranges["soft"] else LETTER


def spellings(word: str, normaliser: Normaliser) -> set[str]:
    """A word's symbols, however it is cased and in whatever order its marks are typed.

    Greek capital eta looks like H and the small one like n; an accent below a letter may come before the one above.
    """
    word = word.replace("\u0130", "i")  # lower() would make two characters of it
    cased = {word}
    if normaliser.folding.case and not word.isascii() and "\u0131" not in word:  # which is no I that an i may have
        cased |= {word.lower(), word.upper(), word.title()}
    forms = {normaliser.word(form) for form in cased} - {""}
    if normaliser.folding.marks and normaliser.folding.list_accents:
        forms |= {_reordered(form, normaliser) for form in forms}
    return forms


def _reordered(symbols: str, normaliser: Normaliser) -> str:
    """With the marks of each letter the other way round."""
    parts: list[str] = []
    for symbol in symbols:
        if normaliser.is_mark(symbol) and parts:
            parts[-1] = parts[-1][0] + symbol + parts[-1][1:]
        else:
            parts.append(symbol)
    return "".join(parts)


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
        "compatibility": {}, "unmarked": {}, "marked": {}, "look_alike": {}, "case": {}, "simplified": {},
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


@cache
def border_classes() -> dict[str, set[int]]:
    """Code points by class of word borders: "word", "hangul", "katakana", and "extends" for what ends no letter."""
    ranges = {name: _tables().ranges[name] for name in ("word", "hangul", "katakana", "extends")}
    return ranges | {"extends": ranges["extends"] | set(map(ord, HIRAGANA_VOICING))}


FOLDINGS = tuple(field.name for field in fields(Folding))
