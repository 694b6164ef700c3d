"""Turns a folder of word lists into the compiled file: every spelling of every word, one trie for each way to match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bls.words import pinyin, table
from bls.words import trie as word_trie
from bls.words.lists import Category, Word, WordLists, read
from bls.words.normalise import INVISIBLE, SEPARATOR, SOFT, Folding, Normaliser, is_cjk, normaliser, spellings
from bls.words.pattern_lists import Pattern
from bls.words.table import ALLOW, Treatment


@dataclass(frozen=True)
class _Manner:
    """How words match; categories that share one share a trie."""

    folding: Folding
    separators: bool
    repeats: bool


@dataclass
class _Entries:
    """(symbols, root) -> what ends there, as (category or ALLOW, needs a boundary to its right)."""

    ends: defaultdict[tuple[str, int], set[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(set))


def compile_folder(folder: Path, target: Path) -> str:
    """Reads, checks and compiles; returns the version. Raises ListError and leaves `target` as it is."""
    return compile_lists(read(folder), target)


def compile_lists(lists: WordLists, target: Path) -> str:
    """Compiles lists already read; returns the version."""
    categories = [lists.categories[name] for name in sorted(lists.categories)]
    treatments = [Treatment(category.name, category.action, category.text) for category in categories]
    pii = {}
    for kind, category in lists.pii.items():
        pii[kind] = len(treatments)
        treatments.append(Treatment(category.name, category.action, category.text))

    arrays: list[npt.NDArray[np.int32]] = []
    lexicons, longest = [], 0
    for manner in dict.fromkeys(map(_manner, categories)):
        entries = _entries(lists, categories, manner)
        longest = max([longest, *(len(symbols) for symbols, _ in entries.ends)])
        lexicons.append(_lexicon(manner, entries, treatments, arrays))
    header = {
        "prompt": {category.name: category.prompt for category in categories},
        "patterns": _patterns(lists.patterns, arrays),
        "mask": lists.mask,
        "max_gap": lists.max_gap,
        "words": sum(map(len, lists.deny.values())),
        "longest": longest,
        "treatments": [vars(treatment) for treatment in treatments],
        "pii": pii,
        "lexicons": lexicons,
        "numbers": sum(map(len, arrays)),
    }
    return table.write(target, header, arrays)


def _patterns(patterns: list[Pattern], arrays: list[npt.NDArray[np.int32]]) -> dict[str, Any]:
    """The patterns as they are, and what each character of a prompt becomes: the patterns' own letters or nothing."""
    phrases = [phrase for pattern in patterns for step in pattern.steps for phrase in step.phrases]
    phrases += [phrase for pattern in patterns for phrase in pattern.not_after]
    alphabet = word_trie.Alphabet.of([token for phrase in phrases for token in phrase])
    pages, blocks, several = _characters(normaliser(Folding()), alphabet)
    return {
        "patterns": patterns,
        "symbols": "".join(alphabet.codes),  # in the order of their codes, from 1 on
        "several": several,
        "arrays": _placed({"pages": pages, "blocks": blocks}, arrays),
    }


def _placed(named: dict[str, Any], arrays: list[npt.NDArray[np.int32]]) -> dict[str, tuple[int, int]]:
    """Where each array begins in the file's body, and its size."""
    places = {}
    for name, array in named.items():
        places[name] = (sum(map(len, arrays)), len(array))
        arrays.append(array)
    return places


def _manner(category: Category) -> _Manner:
    return _Manner(category.folding, category.separators, category.repeats)


def _entries(lists: WordLists, categories: list[Category], manner: _Manner) -> _Entries:
    folded = normaliser(manner.folding)
    entries = _Entries()
    for number, category in enumerate(categories):
        if _manner(category) == manner:
            for word in lists.deny[category.name]:
                for symbols in _forms(word, category, folded):
                    _add(entries, symbols, number, word, category.whole_words)
    for word in lists.allow:
        for symbols in spellings(word.text, folded):
            entries.ends[symbols, word_trie.ANYWHERE].add((ALLOW, False))
    return entries


def _forms(word: Word, category: Category, folded: Normaliser) -> Iterator[str]:
    for symbols in spellings(word.text, folded):
        yield symbols
        if category.pinyin != "off" and any(map(is_cjk, symbols)):
            yield from pinyin.variants(symbols, entire=category.pinyin == "full")


def _add(entries: _Entries, symbols: str, number: int, word: Word, whole_words: bool) -> None:
    left = whole_words and not word.open_left and symbols[0] in word_trie.ASCII_WORD
    right = whole_words and not word.open_right and symbols[-1] in word_trie.ASCII_WORD
    root = word_trie.AT_WORD_START if left else word_trie.ANYWHERE
    entries.ends[symbols, root].add((number, right))


def _lexicon(manner: _Manner, entries: _Entries, treatments: list[Treatment], arrays: list[Any]) -> dict[str, Any]:
    keys = sorted(entries.ends)
    words = [symbols for symbols, _ in keys]
    alphabet = word_trie.Alphabet.of(words)
    distinct: dict[tuple[tuple[int, bool], ...], int] = {(): 0}
    numbers = np.empty(len(keys), np.int32)
    bits = np.empty(len(keys), np.int32)
    for at, key in enumerate(keys):
        ends = tuple(sorted(entries.ends[key]))
        numbers[at] = distinct.setdefault(ends, len(distinct))
        bits[at] = _bits(ends, treatments)
    roots = np.fromiter((root for _, root in keys), np.int32, len(keys))
    trie = word_trie.build(words, roots, numbers, bits, alphabet)
    pages, blocks, several = _characters(normaliser(manner.folding), alphabet)

    named = {"base": trie.base, "check": trie.check, "info": trie.info, "pages": pages, "blocks": blocks}
    return {
        "separators": manner.separators,
        "repeats": manner.repeats,
        "first_cjk": alphabet.first_cjk,
        "endings": list(distinct),
        "several": several,
        "arrays": _placed(named, arrays),
    }


def _bits(ends: tuple[tuple[int, bool], ...], treatments: list[Treatment]) -> int:
    bits = 0
    for number, _ in ends:
        if number == ALLOW:
            bits |= word_trie.ALLOW_HERE
        else:
            bits |= word_trie.HIDE_HERE if treatments[number].hides else 0
            bits |= word_trie.SPAN_HERE if treatments[number].spans else 0
    return bits


def _characters(folded: Normaliser, alphabet: word_trie.Alphabet) -> tuple[Any, Any, list[list[int]]]:
    """What each of Unicode's 1.1 million points is: blocks of 256 entries, each different block once."""
    blank = _without_words(folded.folding)
    entries = blank.entries.copy()
    for symbol, code in alphabet.codes.items():
        if symbol in blank.sources:
            entries[blank.sources[symbol]] |= code
        if folded.of(symbol).symbols == symbol:
            entries[ord(symbol)] |= code
    several: list[list[int]] = []
    for character, symbols in blank.several:
        codes = [alphabet.codes.get(symbol, 0) for symbol in symbols]
        if any(codes):
            entries[ord(character)] = table.SEVERAL | len(several)
            several.append(codes)
    distinct: dict[bytes, int] = {}
    pages = [distinct.setdefault(block.tobytes(), len(distinct)) for block in entries.reshape(-1, 256)]
    return np.array(pages, np.int32), np.frombuffer(b"".join(distinct), np.int32), several


class _Blank(NamedTuple):
    """Every character under one folding, before there are words."""

    entries: npt.NDArray[np.int32]  # only the kinds
    sources: dict[str, npt.NDArray[np.int64]]  # symbol -> the other characters that become it
    several: list[tuple[str, str]]  # characters that become several symbols


@cache
def _without_words(folding: Folding) -> _Blank:
    folded = normaliser(folding)
    kinds = {SEPARATOR: table.SEPARATOR, INVISIBLE: table.INVISIBLE, SOFT: table.SOFT}
    entries = np.zeros(0x110000, np.int32)
    sources: defaultdict[str, list[int]] = defaultdict(list)
    several = []
    for character in sorted(folded.changed):
        kind, symbols = folded.of(character)
        entries[ord(character)] = kinds.get(kind, 0)
        if len(symbols) == 1 and symbols != character:
            sources[symbols].append(ord(character))
        elif len(symbols) > 1:
            several.append((character, symbols))
    return _Blank(entries, {symbol: np.array(points) for symbol, points in sources.items()}, several)
