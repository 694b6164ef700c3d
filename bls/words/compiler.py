"""Turns a folder of word lists into the compiled file: every spelling of every word, one trie for each way to match."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bls.words import affixes, borders, characters, frequent, pattern_questions, pinyin, table
from bls.words import trie as word_trie
from bls.words.candidates import BORDER, SPELT, TAIL
from bls.words.cjk import is_cjk
from bls.words.lists import Category, Word, WordLists, read
from bls.words.normalise import Folding, Normaliser, normaliser, spellings
from bls.words.pattern_lists import PATTERN_FOLDING, Pattern
from bls.words.table import ALLOW, Treatment

# Its dots are dots: "1633.in" is not found in "1633 in Rome".
_DOMAIN = re.compile(r"[^\W_](?:[\w-]*[^\W_])?(?:\.[^\W_](?:[\w-]*[^\W_])?)*\.[^\W\d_]{2,}")

# What digits and signs stand for: c@51n0. A word's first letter is always itself.
DIGITS_FOR_LETTERS = {"0": "o", "1": "il", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "9": "g"}
SIGNS_FOR_LETTERS = {"@": "a", "$": "s"}


@dataclass(frozen=True)
class _Manner:
    """How words match; categories that share one share a trie."""

    folding: Folding
    separators: bool
    repeats: bool
    digits: bool


@dataclass
class _Entries:
    """(symbols, root) -> what ends there, as (category or ALLOW, what its end needs: see bls.words.borders)."""

    ends: defaultdict[tuple[str, int], set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    lines: dict[tuple[str, int, int], int] = field(default_factory=dict)  # (symbols, root, category) -> the first line


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
    tokens = [token for phrase in phrases for token in phrase]
    tokens += [word for words in pattern_questions.folded_words(normaliser(PATTERN_FOLDING)).values() for word in words]
    alphabet = word_trie.Alphabet.of(tokens, borders.joins_of)
    return {
        "patterns": patterns,
        "questions": pattern_questions.folded_words(normaliser(PATTERN_FOLDING)),
        "symbols": "".join(alphabet.codes),  # in the order of their codes, from FIRST_CODE on
        "arrays": _placed(characters.tables(normaliser(PATTERN_FOLDING), alphabet), arrays),
    }


def _placed(named: Mapping[str, Any], arrays: list[npt.NDArray[np.int32]]) -> dict[str, tuple[int, int]]:
    """Where each array begins in the file's body, and its size."""
    places = {}
    for name, array in named.items():
        places[name] = (sum(map(len, arrays)), len(array))
        arrays.append(array)
    return places


def _manner(category: Category) -> _Manner:
    return _Manner(category.folding, category.separators, category.repeats, category.digits)


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
            entries.ends[symbols, word_trie.ANYWHERE].add((ALLOW, 0))
    _spare_frequent_words(entries, folded)
    return entries


def _spare_frequent_words(entries: _Entries, folded: Normaliser) -> None:
    """Allows the frequent words that whole listed words would be found in for an accent that these don't have."""
    denied = {symbols for symbols, _ in entries.ends}
    for symbols, root in list(entries.ends):
        if root == word_trie.AT_WORD_START and any(needs & BORDER for _, needs in entries.ends[symbols, root]):
            for word in frequent.with_more_accents(symbols, folded):
                for form in spellings(word.text, folded) - denied:
                    entries.ends[form, root].add((ALLOW, 0))


def _forms(word: Word, category: Category, folded: Normaliser) -> Iterator[str]:
    if _DOMAIN.fullmatch(word.text):
        yield from _dotted(word.text, folded)
        return
    for symbols in spellings(word.text, folded):
        yield symbols
        if category.doubled and len(symbols) > 1 and all(map(is_cjk, symbols)):
            yield "".join(symbol * 2 for symbol in symbols)
        if category.pinyin != "off" and any(map(is_cjk, symbols)):
            yield from pinyin.variants(symbols, entire=category.pinyin == "full")


def _dotted(domain: str, folded: Normaliser) -> set[str]:
    """A domain's spellings: with dots, [.] and the like, or the word "dot" between brackets or spaces."""
    labels = [folded.word(label) for label in domain.split(".")]
    return (
        {between.join(labels) for between in (word_trie.DOT, f" {word_trie.DOT} ", " dot ")} if all(labels) else set()
    )


def _add(entries: _Entries, symbols: str, number: int, word: Word, whole_words: bool) -> None:
    left = whole_words and not word.open_left and borders.has_left_border(symbols)
    needs = borders.end_needs(symbols, whole_words=whole_words and not word.open_right)
    needs |= SPELT if borders.may_be_spelt_with_digits(symbols) else 0
    root = word_trie.AT_WORD_START if left else word_trie.ANYWHERE
    for affix in ("", *(affixes.before(symbols) if left else ())):
        entries.ends[affix + symbols, root].add((number, needs))
        entries.lines.setdefault((affix + symbols, root, number), word.line)


def _lexicon(manner: _Manner, entries: _Entries, treatments: list[Treatment], arrays: list[Any]) -> dict[str, Any]:
    keys = sorted(entries.ends)
    words = [symbols for symbols, _ in keys]
    tails = borders.tails([word for (word, _), ends in entries.ends.items() if any(needs & TAIL for _, needs in ends)])
    alphabet = word_trie.Alphabet.of([*words, *tails, *(SIGNS_FOR_LETTERS if manner.digits else ())], borders.joins_of)
    distinct: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    numbers = np.empty(len(keys), np.int32)
    bits = np.empty(len(keys), np.int32)
    for at, key in enumerate(keys):
        ends = tuple(sorted(entries.ends[key]))
        numbers[at] = distinct.setdefault(ends, len(distinct))
        bits[at] = _bits(ends, treatments)
    roots = np.fromiter((root for _, root in keys), np.int32, len(keys))
    trie = word_trie.build(words, roots, numbers, bits, alphabet)
    named = {"base": trie.base, "check": trie.check, "info": trie.info}
    named |= _lines(
        {node: (key, entries.ends[key]) for node, key in zip(trie.ends.tolist(), keys, strict=True)}, entries
    )
    return {
        "separators": manner.separators,
        "repeats": manner.repeats,
        "literal_signs": [alphabet.codes[sign] for sign in SIGNS_FOR_LETTERS if any(sign in word for word in words)],
        "spelt": _spelt(alphabet) if manner.digits else [],
        "first_cjk": alphabet.first_cjk,
        "joins": "".join(f"{joins:x}" for joins in alphabet.joins),
        "endings": list(distinct),
        "tails": [[alphabet.codes[symbol] for symbol in tail] for tail in tails],
        "arrays": _placed({**named, **characters.tables(normaliser(manner.folding), alphabet)}, arrays),
    }


def _lines(
    by_node: dict[int, tuple[tuple[str, int], set[tuple[int, int]]]], entries: _Entries
) -> dict[str, npt.NDArray[np.int32]]:
    """The line of each end of a listed word, by node and category; and how many of them lie before each few nodes."""
    found = [
        (node, entries.lines[symbols, root, category])
        for node, ((symbols, root), ends) in sorted(by_node.items())
        for category, _ in sorted(ends)
        if category != ALLOW
    ]
    nodes, lines = np.array(found, np.int32).reshape(-1, 2).T
    blocks = np.arange(0, max(by_node, default=0) + 1, table.LINE_BLOCK)
    return {"lines": lines, "lines_before": np.searchsorted(nodes, blocks).astype(np.int32)}


def _spelt(alphabet: word_trie.Alphabet) -> list[tuple[int, list[int]]]:
    """The codes of digits and signs, each with those of the letters that it stands for."""
    signs = {**DIGITS_FOR_LETTERS, **SIGNS_FOR_LETTERS}
    return [(alphabet.codes[sign], [alphabet.codes[letter] for letter in letters]) for sign, letters in signs.items()]


def _bits(ends: tuple[tuple[int, int], ...], treatments: list[Treatment]) -> int:
    bits = 0
    for number, _ in ends:
        if number == ALLOW:
            bits |= word_trie.ALLOW_HERE
        else:
            bits |= word_trie.DENY_HERE
            bits |= word_trie.HIDE_HERE if treatments[number].hides else 0
            bits |= word_trie.SPAN_HERE if treatments[number].spans else 0
    return bits
