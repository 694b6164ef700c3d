"""Writes bls/words/data/characters.txt and bls/words/data/pinyin.txt from well-kept libraries.

Run it when one of them, or Unicode itself, has moved on; the files it writes are in git, so
neither the compiler of word lists nor a server ever needs these libraries:

    pip install -r requirements-dev.txt    # confusable_homoglyphs, opencc-python-reimplemented, pypinyin
    python -m scripts.build_tables
"""

import json
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from bls.paths import ROOT

DATA = ROOT / "bls" / "words" / "data"

ASCII_LETTERS_AND_DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SOFT = set("+#@&%")  # meant literally in "c++" or "r&d", and yet put between Chinese characters
WHITE_CONTROLS = set("\t\n\x0b\x0c\r\x85")
# Letters to nobody: fillers and blanks that fonts draw as nothing.
FILLERS = set("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f")
# Marks that decorate a letter. Vowel signs of Indic and Thai scripts are marks too, but they spell the word.
MARK_BLOCKS = (
    (0x0300, 0x036F), (0x0483, 0x0489), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670),
    (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0x302A, 0x302D), (0x3099, 0x309A), (0xFE20, 0xFE2F),
)  # fmt: skip
VARIATION_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
# Letters drawn inside a shape, or small capitals: no decomposition says so, only their names.
SHAPED = re.compile(
    r"(?:NEGATIVE CIRCLED|NEGATIVE SQUARED|CROSSED NEGATIVE SQUARED) LATIN CAPITAL LETTER ([A-Z])"
    r"|REGIONAL INDICATOR SYMBOL LETTER ([A-Z])"
    r"|LATIN LETTER SMALL CAPITAL ([A-Z])"
    r"|LATIN (?:CAPITAL|SMALL) LETTER (?:DOTLESS )?([A-Z])(?: WITH .*)?"
)


def main() -> int:
    DATA.mkdir(exist_ok=True)
    (DATA / "characters.txt").write_text("".join(character_lines()), encoding="utf-8")
    (DATA / "pinyin.txt").write_text("".join(pinyin_lines()), encoding="utf-8")
    for path in sorted(DATA.glob("*.txt")):
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")
    return 0


def character_lines() -> Iterator[str]:
    """One line a target, "kind target sources", then the ranges of each class."""
    yield "# Made by scripts/build_tables.py; do not edit. Each line: kind, target, the characters that become it.\n"
    yield f"# Unicode {unicodedata.unidata_version}\n"
    tables: dict[str, Callable[[str], str | None]] = {
        "compatibility": compatibility,
        "unmarked": unmarked,
        "case": str.casefold,
        "look_alike": look_alikes().get,
        "simplified": simplified().get,
    }
    for kind, target_of in tables.items():
        sources = defaultdict(list)
        for character in assigned():
            target = target_of(character)
            if target and target != character:
                sources[target].append(character)
        for target in sorted(sources):
            yield f"{kind} {target} {''.join(sources[target])}\n"
    for name in ("invisible", "mark", "separator", "soft"):
        ranges = ",".join(f"{first:X}-{last:X}" for first, last in runs(c for c in assigned() if class_of(c) == name))
        yield f"range {name} {ranges}\n"


def assigned() -> Iterator[str]:
    for point in range(0x110000):
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs"):
            yield chr(point)


def class_of(character: str) -> str:
    category = unicodedata.category(character)
    point = ord(character)
    if character in FILLERS or category == "Cf" or within(point, VARIATION_SELECTORS):
        return "invisible"
    if category == "Cc":
        return "separator" if character in WHITE_CONTROLS else "invisible"
    if category == "Me" or (category == "Mn" and within(point, MARK_BLOCKS)):
        return "mark"
    if shaped(character):
        return "letter"
    if character in SOFT or category in ("So", "Sc") or 0x1F3FB <= point <= 0x1F3FF:
        return "soft"
    return "separator" if category[0] in "ZPS" else "letter"


def within(point: int, blocks: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= point <= last for first, last in blocks)


def compatibility(character: str) -> str | None:
    """NFKC of this one character, decimal digits of every script included; letters only if several come out."""
    if unicodedata.category(character) == "Nd":
        return str(unicodedata.decimal(character))
    if (digit := unicodedata.digit(character, None)) is not None and unicodedata.category(character) == "No":
        return str(digit)
    folded = unicodedata.normalize("NFKC", character)
    if len(folded) > 1:
        folded = "".join(c for c in folded if class_of(c) == "letter")
    return folded or None


def unmarked(character: str) -> str | None:
    base, *marks = list(unicodedata.normalize("NFD", character))
    return (
        base
        if marks
        and all(class_of(mark) == "mark" for mark in marks)
        and "\u3099" not in marks
        and ("\u309a" not in marks)
        else None
    )  # a voiced kana is another letter, not a decorated one


def shaped(character: str) -> str | None:
    if character.isascii() or not (match := SHAPED.fullmatch(unicodedata.name(character, ""))):
        return None
    return next(group for group in match.groups() if group).lower()


def look_alikes() -> dict[str, str]:
    """Letters of any script that look like one ASCII letter, by Unicode's confusables.txt and by their own names."""
    import confusable_homoglyphs

    path = Path(confusable_homoglyphs.__file__).parent / "confusables.json"
    targets = defaultdict(set)
    confusables = json.loads(path.read_text(encoding="utf-8"))
    for target in ASCII_LETTERS_AND_DIGITS:
        for entry in confusables.get(target, ()):
            source = entry["c"]
            kind = unicodedata.category(source)[0] if len(source) == 1 and not source.isascii() else ""
            if kind == "N" or (kind == "L" and target.isalpha()):  # else "3" would eat a letter of every Russian text
                targets[source].add(target.lower())
    result = {source: one_of(source, found) for source, found in targets.items()}
    result.update((c, letter) for c in assigned() if (letter := shaped(c)))
    result["\u0131"] = "i"
    return {source: target for source, target in result.items() if not is_told_otherwise(source)}


def is_told_otherwise(character: str) -> bool:
    """Han, kana and hangul are letters in their own right; the other two tables come first."""
    east_asian = 0x2E80 <= ord(character) <= 0xD7FF
    return east_asian or compatibility(character) not in (None, character) or unmarked(character) is not None


def one_of(source: str, targets: set[str]) -> str:
    """confusables.txt holds i, l and 1, or o and 0, for the same; the source's name says which is meant."""
    if len(targets) == 1 and targets != {"l"}:
        return next(iter(targets))
    if targets & {"i", "l", "1"}:
        return "i" if re.search(r"\b(I|IOTA|YI|IOTIFIED)\b", unicodedata.name(source, "")) else "l"
    return max(targets)


def simplified() -> dict[str, str]:
    import opencc

    path = Path(opencc.__file__).parent / "dictionary" / "TSCharacters.txt"
    first = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        traditional, candidates = line.split("\t")
        first[traditional] = candidates.split()[0]
    return {source: first.get(target, target) for source, target in first.items() if len(source) == len(target) == 1}


def runs(characters: Iterator[str]) -> Iterator[tuple[int, int]]:
    run: tuple[int, int] | None = None
    for point in map(ord, characters):
        if run and point == run[1] + 1:
            run = run[0], point
            continue
        if run:
            yield run
        run = point, point
    if run:
        yield run


def pinyin_lines() -> Iterator[str]:
    """One line a syllable: "syllable characters". Tones dropped; lü is written lv and lu, as people type it."""
    from pypinyin.pinyin_dict import pinyin_dict

    yield "# Made by scripts/build_tables.py; do not edit. Each line: syllable, the characters that are read so.\n"
    characters = defaultdict(list)
    for point, readings in sorted(pinyin_dict.items()):
        if not 0x4E00 <= point <= 0x9FFF:
            continue
        for reading in dict.fromkeys(map(toneless, readings.split(","))):
            for spelling in {reading.replace("ü", "v"), reading.replace("ü", "u")}:
                if spelling.isascii() and spelling.isalpha():
                    characters[spelling].append(chr(point))
    for syllable in sorted(characters):
        yield f"{syllable} {''.join(characters[syllable])}\n"


def toneless(reading: str) -> str:
    decomposed = unicodedata.normalize("NFD", reading.replace("ü", "\0").replace("\u0261", "g"))
    bare = "".join(c for c in decomposed if c == "\u0308" or not unicodedata.combining(c)).replace("\0", "ü")
    return unicodedata.normalize("NFC", bare)


if __name__ == "__main__":
    sys.exit(main())
