"""Finds the patterns of words/patterns in a text, in one pass whose time grows with the text and nothing else.

The text becomes tokens (Latin words and single Chinese characters, folded as the word lists are). Where a phrase of a
pattern stands is looked up; only for a pattern all of whose steps stand somewhere are the distances compared, step by
step. Nothing is ever tried twice, so no text can make it slow.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

from bls.normalise import is_cjk
from bls.word_table import INVISIBLE, SEPARATOR, SEVERAL, SOFT

_NUMBER = (1 << 20) - 1
_KEPT = 8000  # different characters, and different words
_CJK, _OTHER = "\ue000", "~"  # letters that no pattern holds: a token each, or part of a word
_SIGN = 0xE100  # private letters from here on stand for quoted signs
_SENTENCE_END = "\ue001"
_SENTENCE_ENDS = re.compile(r"[.!?;。！？；…\n]")
_DIGIT_LETTERS = [str.maketrans("013457", "o" + one + "east") for one in "il"]
_SPACED_OUT = 5  # so many single letters in a row are a word in disguise
_RUN_TOGETHER = 10  # so many letters may be several words
_MAX_WORD = 200  # letters of it that are looked into

Place = tuple[int, int]  # first token, and behind the last
_SINGLE, _SEVERAL_WORDS = -1, -2  # in place of an atom: a lone letter; words without a space between them


class Match(NamedTuple):
    """A pattern that was found, by its family and its line there."""

    family: str
    line: int


class _Pattern(NamedTuple):
    match: Match
    not_after: int  # a group's number, or -1
    gaps: tuple[int, ...]
    groups: tuple[int, ...]  # which phrases each step may be


class _Fold(dict[int, str]):
    """What each character becomes, for str.translate; worked out from the mapped tables as they come."""

    def __init__(self, symbols: str, several: Sequence[Sequence[int]], pages: memoryview, blocks: memoryview) -> None:
        super().__init__()
        self._symbols, self._several, self._pages, self._blocks = symbols, several, pages, blocks

    def __missing__(self, point: int) -> str:
        if len(self) >= _KEPT:
            self.clear()
        entry = self._blocks[self._pages[point // 256] * 256 + point % 256]
        if point == ord(_SENTENCE_END) or _SIGN <= point < _SIGN + 0x100:
            folded = f" {chr(point)} "
        elif entry & INVISIBLE:
            folded = ""
        elif entry & (SEPARATOR | SOFT):
            folded = " "
        else:
            codes = self._several[entry & _NUMBER] if entry & SEVERAL else [entry & _NUMBER]
            unknown = f" {_CJK} " if is_cjk(chr(point)) else _OTHER
            folded = "".join(self._letter(code) if code else unknown for code in codes)
        self[point] = folded
        return folded

    def _letter(self, code: int) -> str:
        symbol = self._symbols[code - 1]
        return f" {symbol} " if is_cjk(symbol) else symbol


class PatternScanner:
    """The patterns of one compiled file (WordTable.patterns)."""

    def __init__(self, header: Mapping[str, Any], pages: memoryview, blocks: memoryview) -> None:
        self._fold = _Fold(header["symbols"], header["several"], pages, blocks)
        self._groups: dict[tuple[tuple[str, ...], ...], int] = {}
        self._patterns = [
            _Pattern(
                Match(family, line),
                self._group(not_after) if not_after else -1,
                tuple(gap for gap, _ in steps),
                tuple(self._group(phrases) for _, phrases in steps),
            )
            for family, line, not_after, steps in header["patterns"]
        ]
        self._atoms = _Atoms({token for phrases in self._groups for phrase in phrases for token in phrase})
        self._words: dict[int, list[int]] = {}  # groups with a phrase of this word alone,
        self._phrases: dict[tuple[int, int], list[tuple[tuple[int, ...], list[int]]]] = {}  # of these two and a rest
        self._index_phrases()
        self._needs = [self._needed(pattern) for pattern in self._patterns]
        signs = sorted((token for token in self._atoms.exact if token.startswith('"')), key=len, reverse=True)
        self._signs = {sign.strip('"'): chr(_SIGN + number) for number, sign in enumerate(signs)}
        self._sign = re.compile("|".join(map(re.escape, self._signs)) or r"(?!)", re.IGNORECASE)
        self._sign_starts = {sign[0] for sign in self._signs}
        for sign in signs:
            self._atoms[self._signs[sign.strip('"')]] = (self._atoms.exact[sign],)
        self._atoms.lasting = dict(self._atoms)

    def find(self, text: str) -> list[Match]:
        """The patterns that the text holds, each once, in their files' order."""
        tokens = self._with_signs(text).translate(self._fold).split()
        if not tokens:
            return []
        atoms = self._atoms_of(tokens)
        possible = self._possible(set(chain.from_iterable(atoms)))
        if not possible:
            return []
        places = self._places(atoms, {group for pattern in possible for group in (pattern.not_after, *pattern.groups)})
        at = _positions(tokens)
        return [pattern.match for pattern in possible if self._stands(pattern, places, at, text, tokens)]

    def _possible(self, present: set[int]) -> list[_Pattern]:
        """The patterns whose steps can all be made of these atoms. Nearly always none, so it must be quick."""
        return [
            pattern
            for pattern, rarest, groups in self._needs
            if not rarest.isdisjoint(present) and all(any(map(present.issuperset, group)) for group in groups)
        ]

    def _group(self, phrases: Any) -> int:
        return self._groups.setdefault(tuple(tuple(phrase) for phrase in phrases), len(self._groups))

    def _needed(self, pattern: _Pattern) -> tuple[_Pattern, frozenset[int], list[list[frozenset[int]]]]:
        """A pattern, an atom of each phrase of its seemingly rarest step, and all atoms of each step's phrases."""
        by_number = {number: phrases for phrases, number in self._groups.items()}
        steps = [by_number[group] for group in pattern.groups]
        rarest = max(steps, key=lambda phrases: (min(len(max(phrase, key=len)) for phrase in phrases), -len(phrases)))
        exact = self._atoms.exact
        return (
            pattern,
            frozenset(exact[max(phrase, key=len)] for phrase in rarest),
            [[frozenset(exact[token] for token in phrase) for phrase in phrases] for phrases in steps],
        )

    def _index_phrases(self) -> None:
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for phrases, number in self._groups.items():
            for phrase in phrases:
                groups[phrase].append(number)
        for phrase, numbers in groups.items():
            first, *others = (self._atoms.exact[token] for token in phrase)
            if others:
                self._phrases.setdefault((first, others[0]), []).append((tuple(others[1:]), numbers))
            else:
                self._words[first] = numbers

    def _with_signs(self, text: str) -> str:
        """Quoted signs as one private letter each, since folding drops what isn't a letter."""
        if not text.isascii() and any("\uff00" <= character <= "\uff5e" for character in text):
            text = unicodedata.normalize("NFKC", text)
        if not any(start in text for start in self._sign_starts):
            return text
        return self._sign.sub(lambda found: self._signs[found[0].lower()], text)

    def _atoms_of(self, tokens: list[str]) -> list[tuple[int, ...]]:
        """What each token may be. Tokens that turn out to be several words are replaced by those."""
        look_up = self._atoms.__getitem__
        atoms = list(map(look_up, tokens))
        special = [place for place, found in enumerate(atoms) if found and found[0] < 0]
        if special and self._respell(tokens, atoms, special):
            atoms = list(map(look_up, tokens))
        return atoms

    def _places(self, atoms: list[tuple[int, ...]], wanted: set[int]) -> dict[int, list[Place]]:
        """Where the phrases of each wanted group stand."""
        places: defaultdict[int, list[Place]] = defaultdict(list)
        words, phrases = self._words, self._phrases
        following: tuple[int, ...] = ()
        for place in range(len(atoms) - 1, -1, -1):
            found = atoms[place]
            for atom in found:
                for group in words.get(atom, ()):
                    if group in wanted:
                        places[group].append((place, place + 1))
                for second in following:
                    for rest, groups in phrases.get((atom, second), ()):
                        if not wanted.isdisjoint(groups) and self._follows(rest, atoms, place + 2):
                            for group in groups:
                                places[group].append((place, place + 2 + len(rest)))
            following = found
        return places

    @staticmethod
    def _follows(rest: tuple[int, ...], atoms: list[tuple[int, ...]], place: int) -> bool:
        if place + len(rest) > len(atoms):
            return False
        return all(atom in there for atom, there in zip(rest, atoms[place : place + len(rest)], strict=True))

    def _respell(self, tokens: list[str], atoms: list[tuple[int, ...]], special: list[int]) -> bool:
        """i g n o r e, and ignorethis: as the words that they are. Whether there was any."""
        singles = {place for place in special if atoms[place][0] == _SINGLE}
        spelt: list[str] = []
        run: list[str] = []
        changed = False
        for place, token in enumerate([*tokens, ""]):
            if place in singles:
                run.append(token)
                continue
            if len(run) >= _SPACED_OUT:
                words = self._atoms.words_in("".join(run))
                spelt += words or run
                changed = changed or bool(words)
            else:
                spelt += run
            run = []
            if place < len(tokens):
                together = atoms[place][:1] == (_SEVERAL_WORDS,)
                spelt += self._atoms.words_in(token) if together else [token]
                changed = changed or together
        tokens[:] = spelt
        return changed

    def _stands(
        self, pattern: _Pattern, places: Mapping[int, list[Place]], at: Sequence[int], text: str, tokens: list[str]
    ) -> bool:
        """Whether the steps follow each other closely enough."""
        reached = places.get(pattern.groups[0], [])
        if pattern.not_after in places:
            barred = {end for _, end in places[pattern.not_after]} - self._sentence_starts(text, tokens)
            reached = [place for place in reached if place[0] not in barred]
        for gap, group in zip(pattern.gaps[1:], pattern.groups[1:], strict=True):
            ends = sorted(end for _, end in reached)
            reached = [
                (start, end)
                for start, end in places.get(group, ())
                if (before := bisect_right(ends, start)) and at[start] - at[ends[before - 1]] <= gap
            ]
            if not reached:
                return False
        return bool(reached)

    def _sentence_starts(self, text: str, tokens: list[str]) -> set[int]:
        """Tokens before which a sentence ended: a "never" there belongs to another one. All, if that can't be told."""
        marked = self._with_signs(_SENTENCE_ENDS.sub(_SENTENCE_END, text)).translate(self._fold).split()
        starts: set[int] = set()
        kept: list[str] = []
        for token in marked:
            if token == _SENTENCE_END:
                starts.add(len(kept))
            else:
                kept.append(token)
        return starts if kept == tokens else set(range(len(tokens)))


class _Atoms(dict[str, tuple[int, ...]]):
    """What a token may be among the patterns' words: most are none of them. Remembers words, within bounds."""

    def __init__(self, vocabulary: set[str]) -> None:
        super().__init__()
        self.exact = {token: number for number, token in enumerate(sorted(vocabulary))}
        self._beginnings = {token[:-1]: number for token, number in self.exact.items() if token.endswith("*")}
        self._beginning_sizes = sorted({len(token) for token in self._beginnings})
        self._squeezed: defaultdict[str, list[str]] = defaultdict(list)
        for token in vocabulary:
            self._squeezed[_squeezed(token.rstrip("*"))].append(token.rstrip("*"))
        self._sizes = sorted({size for token in vocabulary if (size := len(token.rstrip("*"))) > 2}, reverse=True)
        self.lasting: dict[str, tuple[int, ...]] = {}

    def __missing__(self, token: str) -> tuple[int, ...]:
        if len(self) >= _KEPT:
            self.clear()
            self.update(self.lasting)
        found = self._look(token) or tuple(self._disguised(token))
        if not found and len(token) == 1 and token.isascii():
            found = (_SINGLE,)
        elif len(token) == 1 and "a" <= token <= "z":
            found = (_SINGLE, *found)
        if len(token) <= _MAX_WORD:
            self[token] = found
        return found

    def words_in(self, token: str) -> list[str]:
        """The words of which a token is made, with what is between them; none if that is more than a quarter of it."""
        words, at, unknown, known = [], 0, 0, 0
        token = token[:_MAX_WORD]
        while at < len(token):
            size = next((size for size in self._sizes if self._is_word(token[at : at + size], size)), 0)
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
        if len(token) >= _RUN_TOGETHER and len(self.words_in(token)) > 1:
            yield _SEVERAL_WORDS


def _squeezed(token: str) -> str:
    return re.sub(r"(.)\1+", r"\1", token)


def _positions(tokens: list[str]) -> list[int]:
    """Where each token begins, in half words."""
    return list(accumulate((1 if token[0] >= "\u1100" else 2 for token in tokens), initial=0))
