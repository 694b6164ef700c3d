"""Turns a folder of word lists into the compiled file: every spelling of every word, one trie for each way to match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bls import pinyin, word_table, word_trie
from bls.normalise import INVISIBLE, SEPARATOR, SOFT, Folding, Normaliser, is_cjk, spellings
from bls.word_list import Category, Word, WordLists, read
from bls.word_table import ALLOW, Treatment

_KINDS = {SEPARATOR: word_table.SEPARATOR, INVISIBLE: word_table.INVISIBLE}


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
        "mask": lists.mask,
        "max_gap": lists.max_gap,
        "words": sum(map(len, lists.deny.values())),
        "longest": longest,
        "treatments": [vars(treatment) for treatment in treatments],
        "pii": pii,
        "lexicons": lexicons,
        "numbers": sum(map(len, arrays)),
    }
    return word_table.write(target, header, arrays)


def _manner(category: Category) -> _Manner:
    return _Manner(category.folding, category.separators, category.repeats)


def _entries(lists: WordLists, categories: list[Category], manner: _Manner) -> _Entries:
    normaliser = Normaliser(manner.folding)
    entries = _Entries()
    for number, category in enumerate(categories):
        if _manner(category) == manner:
            for word in lists.deny[category.name]:
                for symbols in _forms(word, category, normaliser):
                    _add(entries, symbols, number, word, category.whole_words)
    for word in lists.allow:
        for symbols in spellings(word.text, normaliser):
            entries.ends[symbols, word_trie.ANYWHERE].add((ALLOW, False))
    return entries


def _forms(word: Word, category: Category, normaliser: Normaliser) -> Iterator[str]:
    for symbols in spellings(word.text, normaliser):
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
    pages, blocks, several = _characters(Normaliser(manner.folding), alphabet)

    named = {"base": trie.base, "check": trie.check, "info": trie.info, "pages": pages, "blocks": blocks}
    places = {}
    for name, array in named.items():
        places[name] = (sum(map(len, arrays)), len(array))
        arrays.append(array)
    return {
        "separators": manner.separators,
        "repeats": manner.repeats,
        "first_cjk": alphabet.first_cjk,
        "endings": list(distinct),
        "several": several,
        "arrays": places,
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


def _characters(normaliser: Normaliser, alphabet: word_trie.Alphabet) -> tuple[Any, Any, list[list[int]]]:
    """What each of Unicode's 1.1 million points is: blocks of 256 entries, each different block once."""
    entries = np.zeros(0x110000, np.int32)
    for symbol, code in alphabet.codes.items():
        entries[ord(symbol)] = code
    several: list[list[int]] = []
    for character in normaliser.changed():
        kind, symbols = normaliser.of(character)
        codes = [alphabet.codes.get(symbol, 0) for symbol in symbols]
        if kind in _KINDS:
            entry = _KINDS[kind]
        elif kind == SOFT:
            entry = word_table.SOFT | codes[0]
        elif len(codes) == 1 or not any(codes):
            entry = codes[0]
        else:
            entry = word_table.SEVERAL | len(several)
            several.append(codes)
        entries[ord(character)] = entry
    distinct: dict[bytes, int] = {}
    pages = [distinct.setdefault(block.tobytes(), len(distinct)) for block in entries.reshape(-1, 256)]
    return np.array(pages, np.int32), np.frombuffer(b"".join(distinct), np.int32), several
