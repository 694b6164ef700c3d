"""A trie of words in three flat int32 arrays (a double array), so that processes can share it as one mapped file.

The child of node `n` by symbol code `c` is the slot `base[n] + c`, if `check` of that slot is `n`. `info[n]` tells what
lies at and below a node. 100,000 words take about a second to build: by numpy, except for nodes with several children.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bls.words.cjk import is_cjk

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

# Nodes where words begin: anywhere, or only where no letter of their class stands before them.
ANYWHERE, AT_WORD_START = 1, 2
_FIRST_FREE_SLOT = 3

# Bits of `info`; above them stands the index of what ends here (0: nothing).
ALLOW_HERE, ALLOW_BELOW = 1, 2
HIDE_HERE, HIDE_BELOW = 4, 8  # a word that is masked, replaced or terminates
SPAN_HERE, SPAN_BELOW = 16, 32  # one of those whose text waits until the span is closed
CJK_CHILD, CJK_HIDE = 64, 128  # a child by a CJK symbol; one that leads to a word that hides
SPACE_CHILD, MARK_CHILD = 256, 512  # by a space or a dot; by a mark, where a word leads over it that is no allow word
DENY_HERE, DENY_BELOW = 1024, 2048  # a word that is no allow word
ENDING_SHIFT = 12
ENDS = 1 << ENDING_SHIFT  # from it on, a word ends at the node
_HERE = ALLOW_HERE | HIDE_HERE | SPAN_HERE | DENY_HERE
_MAX_TRIES = 256  # after so many collisions a node goes behind all others: the holes are filled by single children

# Codes of symbols. The first stand for symbols of no word, by what they are beside one; then ASCII's letters and digits
# (the digits first), a space, other symbols, CJK ones.
NO_LETTER, SOME_LETTER, SOME_HANGUL, SOME_KATAKANA, SOME_SIGN, SOME_HANGUL_SIGN, SOME_KATAKANA_SIGN = range(7)
FIRST_CODE = 7
ASCII_WORD = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
LAST_DIGIT = FIRST_CODE + 9
SPACE = FIRST_CODE + len(ASCII_WORD)
DOT = "."  # the symbol of one that is no separator: that of a listed domain

# What a symbol is beside a word: two of one class other than 0 join, so no word ends between them.
NO_CLASS, WORD, HANGUL, KATAKANA = range(4)
CLASS_BITS = 3
EXTENDS, IS_MARK = 4, 8  # goes on with the letter before it; is skipped where no word has it
_UNKNOWN = {
    NO_CLASS: NO_LETTER, WORD: SOME_LETTER, HANGUL: SOME_HANGUL, KATAKANA: SOME_KATAKANA, EXTENDS: SOME_SIGN,
    WORD | EXTENDS: SOME_LETTER, HANGUL | EXTENDS: SOME_HANGUL_SIGN, KATAKANA | EXTENDS: SOME_KATAKANA_SIGN,
}  # fmt: skip


def unknown_code(joins: int) -> int:
    """The code of a symbol of no word that joins so; that of a mark is 0: it is skipped."""
    return _UNKNOWN.get(joins, NO_LETTER)


@dataclass(frozen=True)
class Alphabet:
    """The code of each symbol; codes from `first_cjk` on are CJK. `joins` tells of every code how it joins."""

    codes: dict[str, int]
    first_cjk: int
    joins: bytes

    @classmethod
    def of(cls, words: Sequence[str], joins_of: Callable[[str], int]) -> Alphabet:
        fixed = ASCII_WORD + " "
        points, counts = np.unique(_points("".join(words)), return_counts=True)
        by_use = [chr(point) for point in points[np.argsort(-counts, kind="stable")]]
        other = [symbol for symbol in by_use if symbol not in fixed and not is_cjk(symbol)]
        cjk = [symbol for symbol in by_use if is_cjk(symbol)]
        codes = {symbol: code for code, symbol in enumerate([*fixed, *other, *cjk], FIRST_CODE)}
        known = {code: joins for joins, code in reversed(_UNKNOWN.items())}
        joins = [known[code] for code in range(FIRST_CODE)] + [joins_of(symbol) for symbol in codes]
        return cls(codes, FIRST_CODE + len(fixed) + len(other), bytes(joins))

    @property
    def size(self) -> int:
        return FIRST_CODE + len(self.codes)


@dataclass(frozen=True)
class Trie:
    base: Int32
    check: Int32
    info: Int32
    ends: Int32  # the node at which each word ends


def build(words: Sequence[str], roots: Int32, endings: Int32, bits: Int32, alphabet: Alphabet) -> Trie:
    """The trie of distinct (word, root) pairs; each ends with the number `endings` and the *_HERE flags `bits`."""
    edges = _edges(words, roots, alphabet)
    info = _info(edges, endings, bits, alphabet)
    return _pack(edges, info, alphabet.size)


@dataclass(frozen=True)
class _Edges:
    """Nodes numbered from the roots down, level by level; edge k leads to node k + 3."""

    parents: Int64
    codes: Int64
    levels: list[slice]  # of edges
    last: Int64  # the node at which each word ends

    @property
    def nodes(self) -> int:
        return _FIRST_FREE_SLOT + len(self.parents)


def _points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _edges(words: Sequence[str], roots: Int32, alphabet: Alphabet) -> _Edges:
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])) if len(words) else lengths
    code_of = np.zeros(0x110000, np.int64)
    for symbol, code in alphabet.codes.items():
        code_of[ord(symbol)] = code
    flat = code_of[_points("".join(words))]
    size = alphabet.size

    at = roots.astype(np.int64)
    parents, codes, levels = [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
    nodes = _FIRST_FREE_SLOT
    for depth in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > depth)
        keys, which = np.unique(at[longer] * size + flat[starts[longer] + depth], return_inverse=True)
        at[longer] = nodes + which
        parents.append(keys // size)
        codes.append(keys % size)
        levels.append(slice(nodes - _FIRST_FREE_SLOT, nodes - _FIRST_FREE_SLOT + len(keys)))
        nodes += len(keys)
    return _Edges(np.concatenate(parents), np.concatenate(codes), levels, at)


def _info(edges: _Edges, endings: Int32, bits: Int32, alphabet: Alphabet) -> Int32:
    info = np.zeros(edges.nodes, np.int32)
    info[edges.last] = bits | (endings << ENDING_SHIFT)
    dot = alphabet.codes.get(DOT, SPACE)
    marks = np.frombuffer(alphabet.joins, np.uint8) & IS_MARK > 0
    for level in reversed(edges.levels):
        children = info[level.start + _FIRST_FREE_SLOT : level.stop + _FIRST_FREE_SLOT]
        below = ((children & _HERE) << 1) | (children & (_HERE << 1))
        cjk = edges.codes[level] >= alphabet.first_cjk
        below |= np.where(cjk, CJK_CHILD, 0) | np.where(cjk & (below & HIDE_BELOW > 0), CJK_HIDE, 0)
        below |= np.where((edges.codes[level] == SPACE) | (edges.codes[level] == dot), SPACE_CHILD, 0)
        below |= np.where(marks[edges.codes[level]] & (below & DENY_BELOW > 0), MARK_CHILD, 0)
        np.bitwise_or.at(info, edges.parents[level], below.astype(np.int32))
    return info


def _pack(edges: _Edges, info: Int32, alphabet_size: int) -> Trie:
    order = np.argsort(edges.parents, kind="stable")
    codes = edges.codes[order]
    parents, firsts, counts = np.unique(edges.parents[order], return_index=True, return_counts=True)
    base = np.zeros(edges.nodes, np.int64)
    several = np.flatnonzero(counts > 1)
    used = _place_several(base, parents, codes, firsts, counts, several[np.argsort(-counts[several], kind="stable")])

    single = np.flatnonzero(counts == 1)
    taken = np.frombuffer(used, np.uint8)
    free = np.flatnonzero(taken[alphabet_size:] == 0) + alphabet_size
    beyond = np.arange(len(single), dtype=np.int64) + max(len(taken), alphabet_size)
    base[parents[single]] = np.concatenate((free, beyond))[: len(single)] - codes[firsts[single]]

    slot = np.arange(edges.nodes)
    children = np.arange(len(edges.parents)) + _FIRST_FREE_SLOT
    slot[children] = base[edges.parents] + edges.codes
    size = max(int(slot.max(initial=0)), int(base.max(initial=0))) + alphabet_size + 1
    ends = slot[edges.last].astype(np.int32)
    packed_base, check, packed_info = (np.full(size, empty, np.int32) for empty in (0, -1, 0))
    packed = Trie(packed_base, check, packed_info, ends)
    packed.base[slot] = base
    packed.check[slot[children]] = slot[edges.parents]
    packed.info[slot] = info
    return packed


def _place_several(base: Int64, parents: Int64, codes: Int64, firsts: Int64, counts: Int64, nodes: Int64) -> bytearray:
    """First fit for nodes with several children, the largest first; returns which slots they use."""
    used = bytearray(b"\1" * _FIRST_FREE_SLOT + b"\0" * (1 << 16))
    start = _FIRST_FREE_SLOT  # no free slot below it is worth another try
    all_codes, parent_of = codes.tolist(), parents.tolist()
    for node, first, count in zip(nodes.tolist(), firsts[nodes].tolist(), counts[nodes].tolist(), strict=True):
        wanted = all_codes[first : first + count]
        lowest, rest = wanted[0], wanted[1:]
        slot = used.find(0, max(start, lowest))
        for tries in range(_MAX_TRIES):
            if len(used) < slot + wanted[-1] + 2:
                used += bytes(len(used) + wanted[-1] + 2)
            at = slot - lowest
            if not any(used[at + code] for code in rest):
                break
            slot = used.find(0, slot + 1)
            if tries == _MAX_TRIES // 2:
                start = slot
        else:
            at = len(used.rstrip(b"\0")) if len(used) < 4096 else used.rfind(1) + 1
            if len(used) < at + wanted[-1] + 2:
                used += bytes(len(used) + wanted[-1] + 2)
        for code in wanted:
            used[at + code] = 1
        base[parent_of[node]] = at
    return used
