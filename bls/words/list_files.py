"""The lines of a word list as editors and other programs save them: what is no plain UTF-8 is read, or told once.

Read: a byte order mark, also in the middle of a joined file, UTF-16, lines that end with CR. Told, in one line that
says how to convert the file: GBK, Big5 and other encodings, a second column, all words in one line.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

MAX_WORD_CHARACTERS = 200
_MOST_TOLD = 5  # mistakes of one kind in one file
_UTF_16_SHARE = 0.9  # of the NUL bytes that stand on one side of their pairs,
_UTF_16_PAIRS = 0.25  # and of the pairs that have one, where no line end tells the side
_MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# Where most characters of a text are: GB 2312's, Big5's and Shift JIS's first levels, hangul, and the Cyrillic half of
# Windows-1251.
_ENCODINGS = (
    ("GB18030", rb"[\xb0-\xd7][\xa1-\xfe]"),
    ("BIG5", rb"[\xa4-\xc6][\x40-\x7e\xa1-\xfe]"),
    ("EUC-KR", rb"[\xb0-\xc8][\xa1-\xfe]"),
    ("SHIFT_JIS", rb"[\x82\x83\x88-\x97][\x40-\xfc]"),
    ("CP1251", rb"[\xc0-\xff\xa8\xb8]"),
)
_LIKELY_SHARE = 0.6
_FEWEST_BYTES = 4  # for an encoding that any byte may be of
_FEWEST_HANGUL = 6  # characters; so many Chinese ones are hardly all where hangul is
_ACCENTS_SHARE = 0.4  # of a western text's letters that are none of ASCII, at most
_NUMBER_BEHIND = re.compile(r"[^\d\s]\s*([|\t,;])\s*-?\d+(?:\.\d+)?$")
_NUMBER_BEFORE = re.compile(r"\d+\s*[|,;]\s*[^\d\s]")
_QUOTED = re.compile(r'"[^"]*"\s*[,;]\s*\S|\[\s*"')
_DELIMITERS = "\t|,;"
_COLUMN_SHARE, _COLUMN_LINES = 0.8, 5

Tell = Callable[[Path, int, str], None]


class Line(NamedTuple):
    number: int
    text: str


def lines_of(path: Path, tell: Tell) -> list[Line]:
    """The lines of a word list; `tell` gets what can't be used."""
    return _without_columns(path, decoded_lines(path, tell), tell)


def decoded_lines(path: Path, tell: Tell) -> list[Line]:
    """The lines of any list without comments and blanks."""
    data = path.read_bytes()
    encoding = _wide_encoding(data)
    if encoding:
        try:
            data = data.decode(encoding).encode()
        except UnicodeDecodeError:
            tell(path, 1, f"neither UTF-8 nor {encoding.upper()}: the file is damaged or no text")
            return []
    return list(_decoded(path, data, tell))


def line_name(folder: str, name: str, line: int) -> str:
    """How a line of a list is called in what the lists themselves must not be in, such as a log."""
    return f"{folder}/{name}.txt:{line}"


def list_paths(folder: Path) -> list[Path]:
    """The lists of a folder. What begins with a dot (._a.txt of Finder, .#a.txt of Emacs) is none."""
    return [path for path in sorted(folder.glob("*.txt")) if not path.name.startswith(".")]


def _wide_encoding(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    head = data[:20_000]
    zeros = Counter(at % 2 for at, byte in enumerate(head) if byte == 0)
    if not zeros or len(data) % 2:
        return ""
    ends = Counter(found.start() % 2 for found in re.finditer(rb"(?=\n\0)", head))
    big_ends = Counter(found.start() % 2 for found in re.finditer(rb"(?=\0\n)", head))
    little, big = ends[0], big_ends[0]
    if little != big:
        return "utf-16-le" if little > big else "utf-16-be"
    if zeros.total() < _UTF_16_PAIRS * len(head) / 2:
        return ""
    for side, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if zeros[side] >= _UTF_16_SHARE * zeros.total():
            return encoding
    return ""


def _decoded(path: Path, data: bytes, tell: Tell) -> Iterator[Line]:
    rows = re.split(rb"\r\n|\n|\r", data)
    bad: list[tuple[int, int]] = []
    for number, row in enumerate(rows, 1):
        try:
            text = row.decode("utf-8").strip().lstrip("\ufeff").strip()
        except UnicodeDecodeError as error:
            bad.append((number, error.start + 1))
            continue
        if "\0" in text:
            tell(path, number, "a NUL byte: the file is damaged or no text")
            return
        if text and not text.startswith("#"):
            yield Line(number, text)
    if not bad:
        return
    other = [row for row in rows if not row.isascii()]
    if len(other) == len(bad) and (encoding := _guess(b"\n".join(other))):
        name = path.name
        how = f"iconv -f {encoding} -t UTF-8 {name} > new && mv new {name}"
        tell(path, bad[0][0], f"not UTF-8 but probably {encoding}; convert it: {how}")
        return
    for number, byte in bad[:_MOST_TOLD]:
        tell(path, number, f"not UTF-8: byte {byte} of the line")
    if len(bad) > _MOST_TOLD:
        tell(path, bad[_MOST_TOLD][0], f"not UTF-8: this line and {len(bad) - _MOST_TOLD - 1} more")


def _guess(data: bytes) -> str:
    """The encoding in which most of the characters are common ones."""
    shares: dict[str, float] = {}
    high, ascii_letters = (len(re.findall(kind, data)) for kind in (rb"[\x80-\xff]", rb"[A-Za-z]"))
    if 1 < high <= _ACCENTS_SHARE * (high + ascii_letters):
        return "CP1252"
    for encoding, common in _ENCODINGS:
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            continue
        single = encoding == "CP1251"
        letters = re.findall(rb"[\x80-\xff]" if single else rb"[\x81-\xfe][\x40-\xfe]", data)
        counted = sum(bool(re.fullmatch(common, letter)) for letter in letters)
        if not single or len(letters) >= _FEWEST_BYTES:
            shares[encoding] = counted / max(1, len(letters))
    if shares.get("EUC-KR") == 1 and high >= 2 * _FEWEST_HANGUL:
        return "EUC-KR"
    best = max(shares, key=lambda encoding: shares[encoding], default="")
    return best if best and shares[best] >= _LIKELY_SHARE else ""


def _without_columns(path: Path, lines: list[Line], tell: Tell) -> list[Line]:
    numbered = [line for line in lines if "\t" in line.text or _NUMBER_BEHIND.search(line.text)]
    if not numbered and len(lines) >= _COLUMN_LINES:
        for sign in _DELIMITERS:
            split = [line for line in lines if line.text.count(sign) == 1]
            if len(split) >= _COLUMN_SHARE * len(lines):
                numbered = split
                break
    if told := _other_columns(lines):
        tell(path, lines[0].number, told)
        return []
    if numbered:
        first = numbered[0]
        sign = next(sign for sign in _DELIMITERS if sign in first.text)
        named = "a tab" if sign == "\t" else repr(sign)
        option = "" if sign == "\t" else f"-d'{sign}' "
        tell(
            path, first.number, f"a second column behind {named}, in {len(numbered)} lines; keep the first: "
            f"cut {option}-f1 {path.name} > new && mv new {path.name}",
        )  # fmt: skip
        return []
    return list(_short_enough(path, lines, tell))


def _other_columns(lines: list[Line]) -> str:
    """What there is to say of a list with a number before each word, or with its words in quotes."""
    first, most = [line for line in lines if _NUMBER_BEFORE.match(line.text)], _COLUMN_SHARE * len(lines)
    if len(first) > 1 and len(first) >= most:
        return f"a number before the word, in {len(first)} lines; a list has one word on a line, and nothing else"
    quoted = [line for line in lines if _QUOTED.match(line.text)]
    if quoted and len(quoted) >= most:
        return f"words in quotes and columns, in {len(quoted)} lines; a list has one word on a line, and nothing else"
    return ""


def _short_enough(path: Path, lines: list[Line], tell: Tell) -> Iterator[Line]:
    told = 0
    for line in lines:
        if len(line.text.strip("*")) <= MAX_WORD_CHARACTERS:
            yield line
        elif (told := told + 1) <= _MOST_TOLD:
            tell(path, line.number, f"longer than {MAX_WORD_CHARACTERS} characters; a list has one word on a line")
