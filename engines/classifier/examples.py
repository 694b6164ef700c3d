"""The example prompts: a file for each class, one prompt a line; empty lines and those that begin with # don't count.

examples/ is what the head is fitted to, held_out/ what it is judged by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
FITTED, HELD_OUT = FOLDER / "examples", FOLDER / "held_out"


class BadExamples(ValueError):
    """A class has no file or no prompt, or a file no class; the message names it."""


@dataclass(frozen=True)
class Examples:
    """`classes` holds for each of `texts` the place of its class among the labels."""

    texts: tuple[str, ...]
    classes: tuple[int, ...]


def load(folder: Path, labels: Sequence[str]) -> Examples:
    """Raises BadExamples."""
    unknown = sorted({file.stem for file in folder.glob("*.txt")} - set(labels))
    if unknown:
        raise BadExamples(f"{folder.name}/{unknown[0]}.txt belongs to no class; known: {', '.join(labels)}")
    texts, classes = [], []
    for number, label in enumerate(labels):
        prompts = _prompts(folder / f"{label}.txt")
        texts += prompts
        classes += [number] * len(prompts)
    return Examples(tuple(texts), tuple(classes))


def digest(*folders: Path) -> str:
    """Changes when an example does."""
    summary = hashlib.sha256()
    for file in (file for folder in folders for file in sorted(folder.glob("*.txt"))):
        summary.update(hashlib.sha256(f"{file.parent.name}/{file.name}".encode()).digest())
        summary.update(hashlib.sha256(file.read_bytes()).digest())
    return summary.hexdigest()


def _prompts(file: Path) -> list[str]:
    place = f"{file.parent.name}/{file.name}"
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise BadExamples(f"{place} is missing") from None
    except UnicodeDecodeError as error:
        raise BadExamples(f"{place} is not valid UTF-8 (byte {error.start})") from None
    prompts = [line for line in lines if line and not line.startswith("#")]
    if not prompts:
        raise BadExamples(f"{place} holds no prompt")
    return prompts
