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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

from bls.words.pattern_questions import Questions
from bls.words.pattern_tokens import SENTENCE_END, SEVERAL_WORDS, SIGN, Atoms, Fold

_SENTENCE_ENDS = re.compile(r"[.?;:。！？；：…\n]|!(?!important\b)")  # a style sheet's !important ends none
_FULL_WIDTH_SIGN = re.compile("[＜［＃]")
_SIGNS_AS_LETTERS = re.compile(r"[@$€!+](?<=[A-Za-z0-9@$€!+].)(?=[A-Za-z0-9@$€!+])")  # the rare sign first
_LETTER_OF_SIGN = dict(zip("@$€!+", "aseit", strict=True))
_SPACED_OUT = 5  # so many single letters in a row are a word in disguise

Place = tuple[int, int]  # first token, and behind the last


class Match(NamedTuple):
    """A pattern that was found, by its family and its line there."""

    family: str
    line: int


class _Pattern(NamedTuple):
    match: Match
    not_after: int  # a group's number, or -1
    gaps: tuple[int, ...]
    groups: tuple[int, ...]  # which phrases each step may be
    spares_questions: bool


class PatternScanner:
    """The patterns of one compiled file (WordTable.patterns)."""

    def __init__(self, header: Mapping[str, Any], pages: memoryview, blocks: memoryview, several: memoryview) -> None:
        self._fold = Fold(header["symbols"], several, pages, blocks)
        self._questions = {name: frozenset(words) for name, words in header["questions"].items()}
        self._groups: dict[tuple[tuple[str, ...], ...], int] = {}
        self._patterns = [
            _Pattern(
                Match(family, line),
                self._group(not_after) if not_after else -1,
                tuple(gap for gap, _ in steps),
                tuple(self._group(phrases) for _, phrases in steps),
                spares_questions,
            )
            for family, line, not_after, steps, spares_questions in header["patterns"]
        ]
        self._atoms = Atoms({token for phrases in self._groups for phrase in phrases for token in phrase})
        self._words: dict[int, list[int]] = {}  # groups with a phrase of this word alone,
        self._phrases: dict[tuple[int, int], list[tuple[tuple[int, ...], list[int]]]] = {}  # of these two and a rest
        self._index_phrases()
        self._needs = [self._needed(pattern) for pattern in self._patterns]
        signs = sorted((token for token in self._atoms.exact if token.startswith('"')), key=len, reverse=True)
        self._signs = {sign.strip('"'): chr(SIGN + number) for number, sign in enumerate(signs)}
        self._sign = re.compile("|".join(map(re.escape, self._signs)) or r"(?!)", re.IGNORECASE)
        self._sign_starts = {sign[0] for sign in self._signs}
        for sign in signs:
            self._atoms[self._signs[sign.strip('"')]] = (self._atoms.exact[sign],)
        self._atoms.lasting = dict(self._atoms)

    def find(self, text: str) -> list[Match]:
        """The patterns that the text holds, each once, in their files' order."""
        found = self._find(text)
        if not found and _SIGNS_AS_LETTERS.search(text) and self._has_words_with_signs(text):
            found = self._find(_with_letters(text))
        return found

    def _has_words_with_signs(self, text: str) -> bool:
        """Whether a word becomes one of the patterns' when its signs are read as letters."""
        words = " ".join(word for word in text.split() if _SIGNS_AS_LETTERS.search(word))
        return any(
            max(self._atoms[token], default=-1) >= 0 for token in _with_letters(words).translate(self._fold).split()
        )

    def _find(self, text: str) -> list[Match]:
        tokens = self._with_signs(text).translate(self._fold).split()
        if not tokens:
            return []
        atoms = self._atoms_of(tokens)
        possible = self._possible(set(chain.from_iterable(atoms)))
        if not possible:
            return []
        places = self._places(atoms, {group for pattern in possible for group in (pattern.not_after, *pattern.groups)})
        at = _positions(tokens)
        sentences = cache(lambda: self._sentence_starts(text, tokens))
        questions = cache(lambda: Questions(tokens, sentences(), self._questions))
        found = []
        for pattern in possible:
            reached = self._reached(pattern, places, at, sentences)
            if reached and pattern.spares_questions:
                reached = [place for place in reached if not questions().hold(*place)]
            if reached:
                found.append(pattern.match)
        return found

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
        if not text.isascii() and _FULL_WIDTH_SIGN.search(text):
            text = unicodedata.normalize("NFKC", text)
        if not any(start in text for start in self._sign_starts):
            return text
        return self._sign.sub(lambda found: self._signs[found[0].lower()], text)

    def _atoms_of(self, tokens: list[str]) -> list[tuple[int, ...]]:
        """What each token may be. Tokens that turn out to be other words are replaced by those."""
        look_up = self._atoms.__getitem__
        atoms = list(map(look_up, tokens))
        special = [place for place, found in enumerate(atoms) if found and found[0] < 0]
        if special and (spelt := list(self._spelt(tokens, atoms, special))):
            for first, behind, words in reversed(spelt):
                tokens[first:behind] = words
            atoms = list(map(look_up, tokens))
        return atoms

    def _spelt(
        self, tokens: list[str], atoms: list[tuple[int, ...]], special: list[int]
    ) -> Iterator[tuple[int, int, list[str]]]:
        """Tokens from the first to the last (exclusive) that are these words: i g n o r e, and ignorethis."""
        for _, run in groupby(enumerate(special), key=lambda each: (each[1] - each[0], atoms[each[1]][0])):
            places = [place for _, place in run]
            if atoms[places[0]][0] == SEVERAL_WORDS:
                for place in places:
                    yield place, place + 1, self._atoms.words_in(tokens[place])
            elif len(places) >= _SPACED_OUT:
                letters = "".join(tokens[place] for place in places)
                if words := self._atoms.words_in(letters):
                    yield places[0], places[-1] + 1, words

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

    @staticmethod
    def _reached(
        pattern: _Pattern,
        places: Mapping[int, list[Place]],
        at: Sequence[int],
        sentence_starts: Callable[[], set[int]],
    ) -> list[Place]:
        """Where the last step stands, of those that follow each other closely enough."""
        reached = places.get(pattern.groups[0], [])
        barred = {end for _, end in places.get(pattern.not_after, ())}.intersection(start for start, _ in reached)
        if barred:
            barred -= sentence_starts()
            reached = [place for place in reached if place[0] not in barred]
        for gap, group in zip(pattern.gaps[1:], pattern.groups[1:], strict=True):
            ends = sorted(end for _, end in reached)
            reached = [
                (start, end)
                for start, end in places.get(group, ())
                if (before := bisect_right(ends, start)) and at[start] - at[ends[before - 1]] <= gap
            ]
            if not reached:
                break
        return reached

    def _sentence_starts(self, text: str, tokens: list[str]) -> set[int]:
        """Tokens before which a sentence ended: a "never" there belongs to another one. All, if that can't be told."""
        marked = self._with_signs(_SENTENCE_ENDS.sub(SENTENCE_END, text)).translate(self._fold).split()
        starts: set[int] = set()
        kept: list[str] = []
        for token in marked:
            if token == SENTENCE_END:
                starts.add(len(kept))
            else:
                kept.append(token)
        return starts if kept == tokens else set(range(len(tokens)))


def _with_letters(text: str) -> str:
    return _SIGNS_AS_LETTERS.sub(lambda sign: _LETTER_OF_SIGN[sign[0]], text)


def _positions(tokens: list[str]) -> list[int]:
    """Where each token begins, in half words."""
    return list(accumulate((1 if token[0] >= "\u1100" else 2 for token in tokens), initial=0))
