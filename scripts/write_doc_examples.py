"""The examples of a document: its files, and its commands with what they print. A test runs them, so they stay true.

    python -m scripts.write_doc_examples docs/serving.md /tmp/serving     writes the files into a new folder

A fenced block whose first line names a file after the language (```pbtxt waits/config.pbtxt) is that file; `*/` stands
for every folder. A block of sh or python without a name is a command; a block of text right after is what it prints.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """`language`: sh or python. `prints` is None where the document doesn't say."""

    language: str
    text: str
    prints: str | None


@dataclass(frozen=True)
class Examples:
    """`commands` by the heading that they stand under, those before the first under ""."""

    files: dict[str, str]
    commands: dict[str, list[Command]]

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        folders = sorted({name.split("/")[0] for name in self.files} - {"*"})
        for name, text in self.files.items():
            for place in [name.replace("*", each) for each in folders] if name.startswith("*/") else [name]:
                path = folder / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)


def examples(document: str) -> Examples:
    """What the Markdown text holds. ValueError for a block of text that belongs to no command."""
    files: dict[str, str] = {}
    commands: dict[str, list[Command]] = {}
    headings = [(0, "")] + [(found.start(), found[1]) for found in _HEADING.finditer(document)]
    end = -1  # of the last command
    for block in _FENCE.finditer(document):
        language, name, text = block.groups()
        heading = [title for start, title in headings if start <= block.start()][-1]
        under = commands.setdefault(heading, [])
        if name:
            files[name] = text
        elif language in ("sh", "python"):
            under.append(Command(language, text, None))
            end = block.end()
        elif language == "text":
            if not under or end < 0 or document[end : block.start()].strip():
                raise ValueError(f"this output has no command before it: {text}")
            under[-1] = Command(under[-1].language, under[-1].text, text)
    return Examples(files, commands)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 0 if list(arguments) in (["-h"], ["--help"]) else 2
    document, folder = map(Path, arguments)
    try:
        folder.mkdir(parents=True)
        examples(document.read_text(encoding="utf-8")).write(folder)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
