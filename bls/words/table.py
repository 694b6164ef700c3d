"""The compiled word lists: one file that every process maps, and that is replaced atomically.

The file: magic, the header's length, a JSON header, then int32 arrays. `version` is a hash of all that. A process keeps
only what it has looked at: a dict entry for each different character that it has met.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bls.paths import WORDS_VARIABLE, home
from bls.words.trie import ANYWHERE, AT_WORD_START, CLASS_BITS, ENDING_SHIFT, LAST_DIGIT

log = logging.getLogger(__name__)

MAGIC = b"WORDTAB6"
ALLOW = -1  # in place of a category: an allow word ends here

# What a character is, as the compiled file holds it: a symbol's code, or one of these flags with a number.
SEPARATOR, INVISIBLE, SOFT, SEVERAL, MARK, VOICED, DOT = (1 << bit for bit in range(20, 27))
FLAGS = SEPARATOR | INVISIBLE | SOFT
_NUMBER = (1 << 20) - 1
_BLOCK = 256
LINE_BLOCK = 64
_KEPT_CHARACTERS = 20_000  # about 2 MB; a text of more different characters than that is no text
RELOAD_SECONDS = 1.0


def codes_of(entry: int, several: memoryview) -> list[int]:
    """The codes of an entry's symbols."""
    if not entry & (SEVERAL | VOICED):
        return [entry & _NUMBER]
    first = (entry & _NUMBER) + 1
    return several[first : first + several[first - 1]].tolist()


class BadWordTable(Exception):
    """The compiled file is missing, cut short or of another format: compile the lists again."""


@dataclass(frozen=True)
class Treatment:
    """What happens to a match of a category; `text` replaces it or is the last thing said."""

    name: str
    action: str
    text: str

    @property
    def hides(self) -> bool:
        return self.action != "monitor"

    @property
    def spans(self) -> bool:
        """Whether nothing of a match can go out before all of it is known."""
        return self.action in ("replace", "terminate")


# A letter as plain numbers: its code, and the nodes it leads to from the two roots (0: none). In place of a code, for
# what is no plain letter, -1, with its kind and its place in `Characters.symbols`.
Character = tuple[int, int, int]


class Characters(dict[str, Character]):
    """What each character is, worked out from the mapped tables at its first appearance."""

    def __init__(self, lexicon: Lexicon, pages: memoryview, blocks: memoryview, several: memoryview) -> None:
        super().__init__()
        self._lexicon, self._pages, self._blocks, self._several = lexicon, pages, blocks, several
        self.symbols: list[tuple[Character, ...]] = []  # of characters that are no plain letter, by their number
        self._places: dict[tuple[Character, ...], int] = {}

    def __missing__(self, character: str) -> Character:
        if len(self) >= _KEPT_CHARACTERS:
            self.clear()
        point = ord(character)
        entry = self._blocks[self._pages[point // _BLOCK] * _BLOCK + point % _BLOCK]
        found = self[character] = self._character(entry)
        return found

    def _character(self, entry: int) -> Character:
        if entry & (SEPARATOR | INVISIBLE):
            return -1, entry, 0
        starts = [self._start(code) for code in codes_of(entry, self._several)]
        for kind in (SEVERAL, SOFT, MARK, VOICED, DOT):
            if entry & kind:
                return -1, kind, self._place(starts)
        if any(node and self._lexicon.info[node] >> ENDING_SHIFT for node in starts[0][1:]):
            return -1, SEVERAL, self._place(starts)  # a word of one letter is too rare for the quick path
        return starts[0]

    def _start(self, code: int) -> Character:
        child = self._lexicon.child
        return code, child(ANYWHERE, code), child(AT_WORD_START, code) if self._lexicon.classes[code] else 0

    def _place(self, symbols: list[Character]) -> int:
        key = tuple(symbols)
        if key not in self._places:
            self._places[key] = len(self.symbols)
            self.symbols.append(key)
        return self._places[key]


class Lexicon:
    """The words of all categories that fold and match in one way, as arrays in the mapped file."""

    def __init__(
        self, header: Mapping[str, Any], arrays: Mapping[str, memoryview], treatments: Sequence[Treatment]
    ) -> None:
        self.separators: bool = header["separators"]
        self.repeats: bool = header["repeats"]
        self.literal_signs: list[int] = header["literal_signs"]  # of `spelt`, those that a word holds
        self.spelt: dict[int, list[int]] = dict(header["spelt"])
        self.first_cjk: int = header["first_cjk"]
        self.joins = bytes(int(joins, 16) for joins in header["joins"])  # of each code
        self.classes = bytes(joins & CLASS_BITS for joins in self.joins)
        self.endings: list[list[tuple[int, int]]] = [[(c, n) for c, n in ends] for ends in header["endings"]]
        self.categories = frozenset(category for ends in self.endings for category, _ in ends) - {ALLOW}
        self.may_terminate = any(treatments[number].action == "terminate" for number in self.categories)
        self.tails, self.tail_ends = _tails(header["tails"])
        self.base, self.check, self.info = arrays["base"], arrays["check"], arrays["info"]
        # What each piece of a text needs, to be unpacked at once; the last is the last code of a digit that may stand
        # for a letter.
        last_spelt = LAST_DIGIT if self.spelt else -1
        self.tables = (self.base, self.check, self.info, self.classes, self.first_cjk, last_spelt)
        # The line in its list of each word that ends, by node, and how many of them lie before each LINE_BLOCK nodes.
        # A file that an older release compiled has neither.
        self._lines, self._lines_before = arrays.get("lines"), arrays.get("lines_before")
        self._listed = [[category for category, _ in ends if category != ALLOW] for ends in self.endings]
        self.pages, self.blocks, self.several = arrays["pages"], arrays["blocks"], arrays["several"]
        self.characters = Characters(self, self.pages, self.blocks, self.several)

    def child(self, node: int, code: int) -> int:
        """The node after `node` by a symbol, or 0."""
        slot: int = self.base[node] + code
        return slot if self.check[slot] == node else 0

    def line(self, node: int, category: int) -> int:
        """The line of its list by which a category's word ends at `node`; 0 where the file does not say."""
        if self._lines is None or self._lines_before is None:
            return 0
        listed, block = self._listed, node // LINE_BLOCK
        at: int = self._lines_before[block] + listed[self.info[node] >> ENDING_SHIFT].index(category)
        at += sum(len(listed[info >> ENDING_SHIFT]) for info in self.info[block * LINE_BLOCK : node])
        line: int = self._lines[at]
        return line


def _tails(tails: Sequence[Sequence[int]]) -> tuple[dict[tuple[int, int], int], set[int]]:
    """What may stand behind a word: (state, code) -> state, from 0 on, and the states that are the whole of one."""
    moves: dict[tuple[int, int], int] = {}
    ends = {0}
    for tail in tails:
        state = 0
        for code in tail:
            state = moves.setdefault((state, code), len(moves) + 1)
        ends.add(state)
    return moves, ends


class PatternArrays(NamedTuple):
    """The patterns for prompts, as bls.words.pattern_matcher reads them."""

    header: Mapping[str, Any]
    pages: memoryview
    blocks: memoryview
    several: memoryview


class WordTable:
    """A compiled file, mapped. Immutable: streams that began with it end with it, even when a newer one is in place."""

    def __init__(self, path: Path) -> None:
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            header, start = _header(self._map)
        except (OSError, ValueError) as error:
            raise BadWordTable(f"{path}: {error}") from error
        whole = memoryview(self._map)

        def arrays(places: Mapping[str, tuple[int, int]]) -> dict[str, memoryview]:
            return {
                name: whole[start + first * 4 : start + (first + size) * 4].cast("i")
                for name, (first, size) in places.items()
            }

        self.version: str = header["version"]
        self.mask: str = header["mask"]
        self.max_gap: int = header["max_gap"]
        self.words: int = header["words"]
        self.longest: int = header["longest"]
        self.treatments = [Treatment(**treatment) for treatment in header["treatments"]]
        self.pii: dict[str, int] = header["pii"]
        self.lexicons = [Lexicon(lexicon, arrays(lexicon["arrays"]), self.treatments) for lexicon in header["lexicons"]]
        self.prompt: dict[str, str] = header["prompt"]  # what a category's match in a prompt does to it
        self.patterns = PatternArrays(header["patterns"], **arrays(header["patterns"]["arrays"]))


def write(path: Path, header: dict[str, Any], arrays: Sequence[npt.NDArray[np.int32]]) -> str:
    """Writes a compiled file beside `path` and renames it into place; returns its version."""
    body = b"".join(array.astype("<i4").tobytes() for array in arrays)
    unsigned = json.dumps(header, ensure_ascii=False, sort_keys=True)
    version = hashlib.sha256(unsigned.encode() + body).hexdigest()[:16]
    text = json.dumps({**header, "version": version}, ensure_ascii=False, sort_keys=True).encode()
    text += b" " * (-(len(text) + 16) % 64)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(MAGIC + len(text).to_bytes(8, "little") + text + body)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o444)  # written in place, it would kill every process that maps it
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return version


def _header(data: mmap.mmap) -> tuple[dict[str, Any], int]:
    if data[:8] != MAGIC:
        raise ValueError("not a compiled word list of this version")
    start = 16 + int.from_bytes(data[8:16], "little")
    header = json.loads(data[16:start])
    if len(data) != start + 4 * header["numbers"]:
        raise ValueError("cut short")
    return header, start


def words_beside(repository: Path) -> NewestTable:
    """The compiled lists of the folder that WORDS_VARIABLE names, or of the words/ that belongs to a model repository.

    Raises BadWordTable: without a table that was good once nothing may be answered.
    """
    folder = Path(os.environ.get(WORDS_VARIABLE) or home(repository) / "words")
    newest = NewestTable(folder / "compiled.bin")
    newest.table()
    return newest


class NewestTable:
    """The compiled file at `path`, looked at again at most once a second; the last good one stays.

    `table()` costs a clock reading, and a stat a second. Raises BadWordTable only if there never was a good one.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None
        self._next_look = 0.0
        self._table: WordTable | None = None

    def table(self) -> WordTable:
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + RELOAD_SECONDS
            self._look()
        if self._table is None:
            self._next_look = 0.0
            raise BadWordTable(f"{self._path}: there is no compiled word list; run scripts/words compile")
        return self._table

    def _look(self) -> None:
        try:
            stat = os.stat(self._path)
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if seen == self._seen:
                return
            self._seen = seen
            self._table = WordTable(self._path)
        except (OSError, BadWordTable) as error:
            if self._table is None:
                raise BadWordTable(f"{error}; run scripts/words compile") from error
            log.warning("the last good word list stays in use: %s", error)
