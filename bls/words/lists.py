r"""Reads a folder of word lists: deny/<category>.txt, allow/<any name>.txt, patterns/<family>.txt, categories.toml.

One word a line, UTF-8, `#` at the start of a line for a comment (`\#` for a word). `*` before or after a word lets it
count inside a longer one: `hack` is found in "to hack", `hack*` in "hackers" too. Whatever is wrong is told with its
file and line, all of it at once, and nothing of a list with a mistake is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bls.words.list_files import lines_of, list_paths
from bls.words.normalise import FOLDINGS, Folding, normaliser, spellings
from bls.words.pattern_lists import PATTERN_FOLDING, Pattern, read_patterns

# Python has it since 3.11; a module by name, since a type checker of one version sees only one of the two.
tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ACTIONS = ("mask", "replace", "terminate", "monitor")
PROMPT_ACTIONS = ("refuse", "mask", "route", "allow")
USUAL_PII_KINDS = ("email", "phone", "cn_id", "bank_card", "api_key")
PII_KINDS = (*USUAL_PII_KINDS, "national_phone")
PINYIN = ("off", "mixed", "full")
DEFAULT_MASK = "*"
DEFAULT_MAX_GAP = 16
_DEFAULT_TEXT = {"replace": "[removed]", "terminate": "", "mask": "", "monitor": ""}
_DEFAULT_PROMPT = {"replace": "mask", "terminate": "refuse", "mask": "mask", "monitor": "allow"}


_EVERYTHING = Folding()


@dataclass(frozen=True)
class Category:
    """What happens to a match of one list. `text` replaces it, or is the last thing said, by the action."""

    name: str
    action: str = "mask"
    text: str = ""
    whole_words: bool = True  # a word counts only where no letter of its class touches it (docs/words.md)
    separators: bool = True  # 法 轮 功, 法*轮*功: between two letters of which one is CJK
    repeats: bool = True  # three or more of a letter stand for any fewer
    digits: bool = True  # h3r01n; and one digit between two Chinese characters
    doubled: bool = True  # each Chinese character of a word twice
    pinyin: str = "off"  # "mixed": some characters in pinyin; "full": all of them too
    prompt: str = "mask"  # what a match in a prompt does: one of PROMPT_ACTIONS
    folding: Folding = _EVERYTHING


class Word(NamedTuple):
    """One line of a list. `open_left`/`open_right`: may be part of a longer Latin word on that side."""

    text: str
    path: Path
    line: int
    open_left: bool = False
    open_right: bool = False


@dataclass
class WordLists:
    deny: dict[str, list[Word]] = field(default_factory=dict)  # by category
    allow: list[Word] = field(default_factory=list)
    categories: dict[str, Category] = field(default_factory=dict)
    pii: dict[str, Category] = field(default_factory=dict)  # by kind
    patterns: list[Pattern] = field(default_factory=list)  # of prompts
    mask: str = DEFAULT_MASK
    max_gap: int = DEFAULT_MAX_GAP


class Problem(NamedTuple):
    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class ListError(Exception):
    """The lists can't be used; `problems` says where and why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def read(folder: Path) -> WordLists:
    """The lists under `folder`. Raises ListError with every problem found."""
    problems: list[Problem] = []
    lists = WordLists()
    for path in list_paths(folder / "deny"):
        lists.deny[path.stem] = list(_words(path, problems))
    for path in list_paths(folder / "allow"):
        lists.allow += _words(path, problems)
    if not lists.deny:
        problems.append(Problem(folder / "deny", 0, "it contains no <category>.txt"))
    lists.categories = {name: Category(name) for name in lists.deny}
    settings = folder / "categories.toml"
    if settings.exists():
        _Settings(settings, lists, problems).apply()
    lists.patterns = read_patterns(
        folder / "patterns", normaliser(PATTERN_FOLDING), lambda *problem: problems.append(Problem(*problem))
    )
    _check(lists, problems)
    if problems:
        raise ListError(problems)
    return lists


def _words(path: Path, problems: list[Problem]) -> Iterator[Word]:
    for number, text in lines_of(path, lambda *problem: problems.append(Problem(*problem))):
        bare = text.strip("*").strip()
        if "*" in bare:
            problems.append(Problem(path, number, f"{bare!r} has a * inside; it opens a word, at its ends only"))
            continue
        # A # begins a comment, so one that begins a word is written \#.
        yield Word(
            bare.removeprefix("\\") if bare[:2] == "\\#" else bare, path, number, text[0] == "*", text[-1] == "*"
        )


def _check(lists: WordLists, problems: list[Problem]) -> None:
    """Words of which nothing is left, and words that are both denied and allowed."""
    allowed_by: dict[Folding, dict[str, Word]] = {}
    plain = normaliser(Folding())
    problems += [_nothing_left(word) for word in lists.allow if not plain.word(word.text)]
    for name, words in lists.deny.items():
        folding = lists.categories[name].folding
        folded = normaliser(folding)
        if folding not in allowed_by:
            allowed_by[folding] = {form: word for word in lists.allow for form in spellings(word.text, folded)}
        allowed = allowed_by[folding]
        for word in words:
            if not (found := spellings(word.text, folded)):
                problems.append(_nothing_left(word))
            elif other := next((allowed[spelling] for spelling in found if spelling in allowed), None):
                message = f"{word.text!r} is also allowed, by {other.path}:{other.line}"
                problems.append(Problem(word.path, word.line, message))


def _nothing_left(word: Word) -> Problem:
    return Problem(word.path, word.line, f"nothing remains of {word.text!r}: only separators and invisible characters")


class _Settings:
    """categories.toml: [filter], [categories.<name>] and [pii.<kind>]; an unknown name or value is a problem."""

    def __init__(self, path: Path, lists: WordLists, problems: list[Problem]) -> None:
        self.path, self.lists, self.problems = path, lists, problems
        self.lines: list[str] = []

    def apply(self) -> None:
        try:
            text = self.path.read_bytes().decode("utf-8-sig")
            document = tomllib.loads(text)
        except UnicodeDecodeError as error:
            return self._problem(1, f"not UTF-8: {error.reason}")
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            return self._problem(int(line[1]) if line else 1, str(error))
        self.lines = text.splitlines()
        for section, content in document.items():
            if section == "filter":
                self._filter(content)
            elif section in ("categories", "pii") and isinstance(content, dict):
                for name, options in content.items():
                    self._category(section, name, options)
            else:
                self._problem(self._line(section), f"unknown section {section!r}; known: filter, categories and pii")
        return None

    def _filter(self, options: dict[str, Any]) -> None:
        for key, value in options.items():
            line = self._line(key, "filter")
            if key == "mask" and isinstance(value, str) and len(value) == 1:
                self.lists.mask = value
            elif key == "max_gap" and type(value) is int and 3 <= value <= 64:
                self.lists.max_gap = value
            elif key in ("mask", "max_gap"):
                wanted = {"mask": "one character", "max_gap": "a number from 3 to 64"}[key]
                self._problem(line, f"{key} is {value!r}; it must be {wanted}")
            else:
                self._problem(line, f"unknown option {key!r}; known: mask and max_gap")

    def _category(self, section: str, name: str, options: Any) -> None:
        header = f"{section}.{name}"
        known: Any = PII_KINDS if section == "pii" else sorted(self.lists.deny)
        if name not in known or not isinstance(options, dict):
            return self._problem(self._line(header), f"unknown {section} {name!r}; known: {', '.join(known)}")
        allowed: dict[str, Any] = {"action": ACTIONS, "text": str}
        if section == "categories":
            allowed |= {
                "whole_words": bool,
                "separators": bool,
                "repeats": bool,
                "digits": bool,
                "doubled": bool,
                "pinyin": PINYIN,
            }
            allowed["prompt"] = PROMPT_ACTIONS
            allowed |= dict.fromkeys(FOLDINGS, bool)
        if problems := list(_wrong(options, allowed)):
            for key, message in problems:
                self._problem(self._line(key, header), message)
            return None
        action = options.get("action", "mask")
        folding = Folding(**{key: options[key] for key in FOLDINGS if key in options})
        rest = {key: value for key, value in options.items() if key not in FOLDINGS}
        target = self.lists.pii if section == "pii" else self.lists.categories
        target[name] = Category(name, **{**_defaults(action), **rest, "folding": folding})
        return None

    def _line(self, key: str, header: str = "") -> int:
        """Where an option, or a section's header, stands; 1 where it can't be told."""
        inside = not header
        for number, line in enumerate(self.lines, 1):
            if heading := re.match(r"\s*\[([^\]]+)\]", line):
                inside = heading[1].replace('"', "").replace(" ", "") == header or not header
                if not header and heading[1].replace('"', "").startswith(key):
                    return number
            elif inside and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", line):
                return number
        return 1

    def _problem(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, message))


def _defaults(action: str) -> dict[str, str]:
    return {"action": action, "text": _DEFAULT_TEXT[action], "prompt": _DEFAULT_PROMPT[action]}


def _wrong(options: dict[str, Any], allowed: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in options.items():
        if key not in allowed:
            yield key, f"unknown option {key!r}; known: {', '.join(allowed)}"
        elif isinstance(allowed[key], tuple):
            if value not in allowed[key]:
                yield key, f"{key} is {value!r}; it must be one of {', '.join(allowed[key])}"
        elif type(value) is not allowed[key]:
            yield key, f"{key} is {value!r}; it must be of type {allowed[key].__name__}"
