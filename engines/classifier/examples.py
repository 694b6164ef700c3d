"""The example prompts: a file for each class, one prompt a line; empty lines and those that begin with # don't count.

What stands before the first line such as [zh] is English, what follows it is in the language of that code. examples/ is
what the head is fitted to, held_out/ what it is judged by; innocent.txt holds prompts that only sound like a risk.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
FITTED, HELD_OUT, INNOCENT = FOLDER / "examples", FOLDER / "held_out", FOLDER / "innocent.txt"
ENGLISH = "en"
_LANGUAGE = re.compile(r"\[([a-z]{2,3})\]")


class BadExamples(ValueError):
    """A class has no file or no prompt, or a file no class; the message names it."""


@dataclass(frozen=True)
class Examples:
    """`classes` holds for each of `texts` the place of its class among the labels, `languages` its language's code."""

    texts: tuple[str, ...]
    classes: tuple[int, ...]
    languages: tuple[str, ...]


def load(folder: Path, labels: Sequence[str]) -> Examples:
    """Raises BadExamples."""
    unknown = sorted({file.stem for file in folder.glob("*.txt")} - set(labels))
    if unknown:
        raise BadExamples(f"{folder.name}/{unknown[0]}.txt belongs to no class; known: {', '.join(labels)}")
    found: list[tuple[str, int, str]] = []
    for number, label in enumerate(labels):
        found += [(text, number, language) for text, language in prompts(folder / f"{label}.txt")]
    texts, classes, languages = zip(*found, strict=True)
    return Examples(texts, classes, languages)


def digest(*places: Path) -> str:
    """Changes when an example does, in a file or in a folder of them."""
    summary = hashlib.sha256()
    for file in (file for place in places for file in (sorted(place.glob("*.txt")) if place.is_dir() else [place])):
        summary.update(hashlib.sha256(f"{file.parent.name}/{file.name}".encode()).digest())
        summary.update(hashlib.sha256(file.read_bytes()).digest())
    return summary.hexdigest()


def prompts(file: Path) -> list[tuple[str, str]]:
    """Each prompt of a file with its language. Raises BadExamples."""
    place = f"{file.parent.name}/{file.name}"
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise BadExamples(f"{place} is missing") from None
    except UnicodeDecodeError as error:
        raise BadExamples(f"{place} is not valid UTF-8 (byte {error.start})") from None
    found, language = [], ENGLISH
    for line in lines:
        if heading := _LANGUAGE.fullmatch(line):
            language = heading[1]
        elif line and not line.startswith("#"):
            found.append((line, language))
    if not found:
        raise BadExamples(f"{place} holds no prompt")
    return found
