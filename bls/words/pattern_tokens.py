"""A prompt's text as the tokens that patterns are made of, and what each token may be among the patterns' words.

Characters are folded by the tables of the compiled file, so as the word lists' are; each Chinese character is a token.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from bls.words.cjk import is_cjk
from bls.words.table import INVISIBLE, SEPARATOR, SOFT, codes_of
from bls.words.trie import FIRST_CODE

_KEPT = 8000  # different characters, and different words
_CJK, _OTHER = "\ue000", "~"  # letters that no pattern holds: a token each, or part of a word
_DIGIT_LETTERS = [str.maketrans("0134579", "o" + one + "eastg") for one in "il"]
_RUN_TOGETHER = 10  # so many letters may be several words
_HEAD = 3  # letters that the shortest of them has
_MAX_WORD = 200  # letters of it that are looked into
SINGLE, SEVERAL_WORDS = -1, -2  # in place of an atom: a lone letter; words without a space between them
SIGN = 0xE100  # private letters from here on stand for quoted signs
SENTENCE_END = "\ue001"


class Fold(dict[int, str]):
    """What each character becomes, for str.translate; worked out from the mapped tables as they come."""

    def __init__(self, symbols: str, several: memoryview, pages: memoryview, blocks: memoryview) -> None:
        super().__init__()
        self._symbols, self._several, self._pages, self._blocks = symbols, several, pages, blocks

    def __missing__(self, point: int) -> str:
        if len(self) >= _KEPT:
            self.clear()
        entry = self._blocks[self._pages[point // 256] * 256 + point % 256]
        if point == ord(SENTENCE_END) or SIGN <= point < SIGN + 0x100:
            folded = f" {chr(point)} "
        elif entry & INVISIBLE:
            folded = ""
        elif entry & (SEPARATOR | SOFT):
            folded = " "
        else:
            unknown = f" {_CJK} " if is_cjk(chr(point)) else _OTHER
            folded = "".join(
                self._letter(code) if code >= FIRST_CODE else unknown for code in codes_of(entry, self._several)
            )
        self[point] = folded
        return folded

    def _letter(self, code: int) -> str:
        symbol = self._symbols[code - FIRST_CODE]
        return f" {symbol} " if is_cjk(symbol) else symbol


class Atoms(dict[str, tuple[int, ...]]):
    """What a token may be among the patterns' words: most are none of them. Remembers words, within bounds."""

    def __init__(self, vocabulary: set[str]) -> None:
        super().__init__()
        self.exact = {token: number for number, token in enumerate(sorted(vocabulary))}
        self._beginnings = {token[:-1]: number for token, number in self.exact.items() if token.endswith("*")}
        self._beginning_sizes = sorted({len(token) for token in self._beginnings})
        self._squeezed: defaultdict[str, list[str]] = defaultdict(list)
        for token in vocabulary:
            self._squeezed[_squeezed(token.rstrip("*"))].append(token.rstrip("*"))
        self._sizes: defaultdict[str, list[int]] = defaultdict(list)  # of the words that begin with these letters
        for word in sorted({token.rstrip("*") for token in vocabulary}, key=len, reverse=True):
            if len(word) >= _HEAD:
                self._sizes[word[:_HEAD]].append(len(word))
        self.lasting: dict[str, tuple[int, ...]] = {}

    def __missing__(self, token: str) -> tuple[int, ...]:
        if len(self) >= _KEPT:
            self.clear()
            self.update(self.lasting)
        found = self._look(token) or tuple(self._disguised(token))
        if not found and len(token) == 1 and token.isascii():
            found = (SINGLE,)
        elif len(token) == 1 and "a" <= token <= "z":
            found = (SINGLE, *found)
        if len(token) <= _MAX_WORD:
            self[token] = found
        return found

    def words_in(self, token: str) -> list[str]:
        """The words of which a token is made, with what is between them; none if that is more than a quarter of it."""
        words: list[str] = []
        at = unknown = known = 0
        token = token[:_MAX_WORD]
        while at < len(token):
            sizes = self._sizes.get(token[at : at + _HEAD], ())
            size = next((size for size in sizes if self._is_word(token[at : at + size], size)), 0)
            if size:
                words += [token[unknown:at]] if at > unknown else []
                words.append(token[at : at + size])
                unknown = at + size
                known += size
            at += size or 1
        words += [token[unknown:]] if unknown < len(token) else []
        return words if 4 * known >= 3 * len(token) else []

    def _is_word(self, text: str, size: int) -> bool:
        return len(text) == size and (text in self.exact or text in self._beginnings)

    def _look(self, token: str) -> tuple[int, ...]:
        found = [self.exact[token]] if token in self.exact else []
        found += [self._beginnings[token[:size]] for size in self._beginning_sizes if token[:size] in self._beginnings]
        return tuple(found)

    def _disguised(self, token: str) -> Iterator[int]:
        if len(token) < 3 or len(token) > _MAX_WORD or token.isdigit():
            return
        if not token.isalpha():
            for letters in _DIGIT_LETTERS:
                yield from self._look(token.translate(letters))
        if (squeezed := _squeezed(token)) in self._squeezed and re.search(r"(.)\1\1", token):
            for word in self._squeezed[squeezed]:
                yield from self._look(word)
        if len(token) >= _RUN_TOGETHER and sum(self._is_word(word, len(word)) for word in self.words_in(token)) > 1:
            yield SEVERAL_WORDS


def _squeezed(token: str) -> str:
    return re.sub(r"(.)\1+", r"\1", token)
