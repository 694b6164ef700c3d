"""Writes bls/words/data/characters.txt and bls/words/data/pinyin.txt from well-kept libraries.

Run it when one of them, or Unicode itself, has moved on; the files it writes are in git, so
neither the compiler of word lists nor a server ever needs these libraries:

    pip install -r requirements-dev.txt    # confusable_homoglyphs, opencc-python-reimplemented, pypinyin, regex
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
from scripts.build_borders import CEDILLA, COMMA_BELOW, VOICING, borders, has, script_class, with_marks

DATA = ROOT / "bls" / "words" / "data"
CJK = ROOT / "bls" / "words" / "cjk.py"

ASCII_LETTERS_AND_DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SOFT = set("+#@&%")  # meant literally in "c++" or "r&d", and yet put between Chinese characters
WHITE_CONTROLS = set("\t\n\x0b\x0c\r\x85")
# Letters to nobody: fillers and blanks that fonts draw as nothing.
# An Arabic word may be drawn out with tatweel.
FILLERS = set("\u0640\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f")
# Marks that decorate a letter. Vowel signs of Indic and Thai scripts are marks too, but they spell the word.
MARK_BLOCKS = (
    (0x0300, 0x036F), (0x0483, 0x0489), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670),
    (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0x302A, 0x302D), (0x3099, 0x309A), (0xFE20, 0xFE2F),
)  # fmt: skip
VARIATION_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
# Letters drawn inside a shape, or small capitals: no decomposition says so, only their names.
# Alphabets whose letters can be put into a Latin word unseen; others are written apart, or from right to left.
ALPHABETS = (
    "Latin", "Cyrillic", "Greek", "Coptic", "Armenian", "Georgian", "Cherokee", "Lisu", "Deseret", "Osage", "Common",
    "Canadian_Aboriginal", "Runic", "Old_Italic", "Tifinagh", "Gothic", "Elbasan", "Miao", "Lydian", "Carian", "Lycian",
    "Warang_Citi",
)  # fmt: skip
LIKE_A_MARKED_LETTER = "\u03b7"  # a small eta, which Unicode takes for an n with a stroke below
# One letter of a language on the keyboards of its neighbours, and ligatures that are a spelling.
KEYBOARD_VARIANTS = {
    "\u06cc": "\u064a", "\u0649": "\u064a", "\u06a9": "\u0643", "\u00e6": "ae", "\u00c6": "ae", "\u0153": "oe",
    "\u0152": "oe",
}  # fmt: skip
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
    CJK.write_text("".join(cjk_lines()), encoding="utf-8")
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
        "marked": marked,
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
    for name, members in borders(assigned(), lambda character: class_of(character) == "letter").items():
        yield f"range {name} {','.join(f'{first:X}-{last:X}' for first, last in runs(iter(members)))}\n"


def cjk_lines() -> Iterator[str]:
    """A module of its own, since servers need this class and none of the other tables."""
    members = borders(assigned(), lambda character: class_of(character) == "letter")["cjk"]
    members += map(chr, range(0xE0F0, 0xE0F2))  # bls.words.normalise.HIRAGANA_VOICING
    numbers = [f"0x{number:X}" for first, last in runs(iter(sorted(members))) for number in (first, last + 1)]
    yield '"""Which letters are Chinese, Japanese or Korean. Made by scripts/build_tables.py; do not edit."""\n\n'
    yield "from bisect import bisect_right\n\n"
    yield "# Where a run of such letters begins, where it ends, where the next one begins ...\n_BORDERS = (\n"
    for at in range(0, len(numbers), 12):
        yield f"    {', '.join(numbers[at : at + 12])},\n"
    yield ")  # fmt: skip\n\n\n"
    yield "def is_cjk(symbol: str) -> bool:\n"
    yield '    """Whether a separator between this letter and another is an evasion, not a border of words."""\n'
    yield "    point = ord(symbol)\n    return point >= _BORDERS[0] and bisect_right(_BORDERS, point) % 2 == 1\n"


def assigned() -> Iterator[str]:
    for point in range(0x110000):
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs"):
            yield chr(point)


def class_of(character: str) -> str:
    category = unicodedata.category(character)
    point = ord(character)
    if character in FILLERS or category == "Cf" or within(point, VARIATION_SELECTORS):
        return "invisible"
    if category == "Mn" and unicodedata.name(character, "").endswith(" SIGN NUKTA"):
        return "mark"
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
    if 0xAC00 <= ord(character) <= 0xD7A3:
        return None  # bls.words.normalise takes Hangul syllables apart by arithmetic
    folded = unicodedata.normalize("NFKC", character)
    if len(folded) > 1:
        folded = "".join(c for c in folded if class_of(c) == "letter")
    return folded or None


def unmarked(character: str) -> str | None:
    """The letter without its marks. A voiced kana is another letter, whose voicing stays."""
    base, *marks = list(unicodedata.normalize("NFD", character))
    if not marks or not all(class_of(mark) == "mark" for mark in marks):
        return None
    return base + "".join(mark for mark in marks if mark in VOICING)


def marked(character: str) -> str | None:
    """The letter and its marks, where they tell one word from another."""
    if character == COMMA_BELOW:
        return CEDILLA
    if 0xAC00 <= ord(character) <= 0xD7A3:
        return None
    return with_marks(character, lambda mark: class_of(mark) == "mark")


def shaped(character: str) -> str | None:
    if character.isascii() or not (match := SHAPED.fullmatch(unicodedata.name(character, ""))):
        return None
    return next(group for group in match.groups() if group).lower()


def look_alikes() -> dict[str, str]:
    """Letters of any script that look like ASCII letters, by Unicode's confusables.txt and by their own names."""
    import confusable_homoglyphs

    path = Path(confusable_homoglyphs.__file__).parent / "confusables.json"
    targets = defaultdict(set)
    for target, entries in json.loads(path.read_text(encoding="utf-8")).items():
        base, *marks = list(unicodedata.normalize("NFD", target))
        if base not in ASCII_LETTERS_AND_DIGITS or not all(map(unicodedata.combining, marks)):
            continue
        for source in (entry["c"] for entry in entries):
            kind = unicodedata.category(source)[0] if len(source) == 1 and not source.isascii() else ""
            # Else "3" would eat a letter of every Russian text, and "o" one of every Arabic one.
            is_letter = kind == "L" and target[0].isalpha() and has(source, script_class(ALPHABETS))
            if (kind == "N" or is_letter) and (not marks or source in LIKE_A_MARKED_LETTER):
                targets[source].add(base.lower())
    result = {source: one_of(source, found) for source, found in targets.items()}
    result.update((c, letter) for c in assigned() if (letter := shaped(c)))
    result["\u0131"] = "i"
    result = {source: target for source, target in result.items() if not is_told_otherwise(source)}
    return result | KEYBOARD_VARIANTS


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
