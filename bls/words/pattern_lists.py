"""Reads words/patterns/<family>.txt: what attacks on a model's instructions look like, one pattern a line.

    (ignore|disregard) .. (previous|prior) .. instruction*    other words may stand at `..`: up to 3, or N at `..N`
    !(don't|never) forget your rules                          not where one of the first stands directly before
    ?forget (your|the) rules                                  not in a question about such words, but for "you"
    "<|im_start|>" (system|assistant)                         quoted: its signs count too

Words compare as those of the word lists do. A Chinese character counts as half a word. There are no other signs, so
that every pattern is found in a time that grows with the text only: see bls/words/pattern_matcher.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bls.words.cjk import is_cjk
from bls.words.list_files import decoded_lines, list_paths
from bls.words.normalise import LETTER, Folding, Normaliser

MAX_LINE_CHARACTERS = 2000
MAX_STEPS = 8
MAX_GAP_WORDS = 12
DEFAULT_GAP_WORDS = 3
MAX_PHRASE_TOKENS = 12
HALVES = 2  # of a word, which gaps are counted in

PATTERN_FOLDING = Folding(list_accents=False)

Phrase = tuple[str, ...]  # tokens: a Latin word, with a * one of its beginnings; a Chinese character; a "quoted sign"
_OF_OTHER_LANGUAGES = re.compile(r"[?+\[\]{}^$\\]|\*(?!$)")  # a regular expression would not do what it seems to
_PART = re.compile(r'\s*(?:\.\.(\d*)(?=\s|$)|\(([^()]*)\)|("[^"]*")|([^\s()"|!]+))')


class Step(NamedTuple):
    """One of `phrases`, with at most `gap` half words between it and the step before."""

    gap: int
    phrases: tuple[Phrase, ...]


class Pattern(NamedTuple):
    family: str
    line: int
    not_after: tuple[Phrase, ...]
    steps: tuple[Step, ...]
    spares_questions: bool = False


class BadPattern(ValueError):
    """Why a line is no pattern."""


def read_patterns(folder: Path, folded: Normaliser, tell: Callable[[Path, int, str], None]) -> list[Pattern]:
    """All patterns of `folder`; `tell` gets the file, line and message of what is none. Without the folder: none."""
    patterns = []
    for path in list_paths(folder):
        for number, text in decoded_lines(path, tell):
            try:
                patterns.append(parsed(text, path.stem, number, folded))
            except BadPattern as error:
                tell(path, number, str(error))
    return patterns


def parsed(text: str, family: str, line: int, folded: Normaliser) -> Pattern:
    """One line as a pattern. Raises BadPattern."""
    if len(text) > MAX_LINE_CHARACTERS:
        raise BadPattern(f"longer than {MAX_LINE_CHARACTERS} characters")
    spares, text = text.startswith("?"), text.removeprefix("?")
    negated, text = text.startswith("!"), text.removeprefix("!")
    not_after: tuple[Phrase, ...] = ()
    steps: list[Step] = []
    gap = 0
    for gap_words, phrases in _parts(text, folded):
        if phrases is None:
            gap = gap_words * HALVES
        elif negated and not not_after:
            not_after = phrases
        else:
            steps.append(Step(gap if steps else 0, phrases))
            gap = 0
    if not steps:
        raise BadPattern("the pattern is empty")
    if len(steps) > MAX_STEPS:
        raise BadPattern(f"{len(steps)} parts; at most {MAX_STEPS} are taken")
    shortest = sum(min(map(len, step.phrases)) for step in steps)
    if shortest == 1 and not all(phrase[0].startswith('"') for phrase in steps[0].phrases):
        raise BadPattern("a single word would be found everywhere; put single words into words/deny")
    return Pattern(family, line, not_after, tuple(steps), spares)


def _parts(text: str, folded: Normaliser) -> Iterator[tuple[int, tuple[Phrase, ...] | None]]:
    """(words of the gap, None), or (0, phrases)."""
    at = 0
    while at < len(text.rstrip()):
        found = _PART.match(text, at)
        if not found:
            near = text[at:].strip()[:20]
            raise BadPattern(
                f'{near!r} is not understood; a pattern has words, (a|b), "signs", .. and a ? or ! at the start'
            )
        at = found.end()
        gap, group, quoted, word = found.groups()
        if gap is None:
            options = [quoted or word] if group is None else _options(group)
            yield 0, tuple(dict.fromkeys(_phrase(option, folded) for option in options))
        elif (words := int(gap or DEFAULT_GAP_WORDS)) > MAX_GAP_WORDS:
            raise BadPattern(f"a gap of {words} words; at most {MAX_GAP_WORDS} are taken")
        else:
            yield words, None


def _options(group: str) -> list[str]:
    """The texts between the bars; a bar inside quotes is none."""
    return re.findall(r'(?:^|(?<=\|))\s*("[^"]*"|[^|"]*?)\s*(?=\||$)', group) or [""]


def _phrase(text: str, folded: Normaliser) -> Phrase:
    if text.startswith('"'):
        if len(text) < 4:
            raise BadPattern(f"{text} is too short; it needs at least two signs")
        return (text.lower(),)
    if sign := _OF_OTHER_LANGUAGES.search(text):
        raise BadPattern(f"{sign[0]!r} in {text!r} has no meaning here; put it in quotes to match it literally")
    tokens = tokens_of(text, folded)
    if not tokens:
        raise BadPattern(f"nothing remains of {text!r}: only separators and invisible characters")
    if len(tokens) > MAX_PHRASE_TOKENS:
        raise BadPattern(f"{text!r} has {len(tokens)} words; at most {MAX_PHRASE_TOKENS} are taken")
    if text.endswith("*"):
        if len(tokens[-1]) < 3:
            raise BadPattern(f"{text!r} is too short for a *; it needs at least three letters")
        tokens[-1] += "*"
    return tuple(tokens)


def tokens_of(text: str, folded: Normaliser) -> list[str]:
    """Latin words and single Chinese characters, as bls.words.pattern_matcher sees them."""
    parts = []
    for kind, symbols in map(folded.of, text):
        if kind == LETTER:
            parts += [f" {symbol} " if is_cjk(symbol) else symbol for symbol in symbols]
        elif kind != "invisible":
            parts.append(" ")
    return "".join(parts).split()
