"""One command taken to pieces: words, and flags with their values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from engines.tensorrt_llm.flags import BadCommand

_NAMED = re.compile(r"--?[A-Za-z][\w-]*")
_REDIRECTED = re.compile(r"\d?&?>|\||&$")  # 2>&1, | tee: no more of the command


@dataclass(frozen=True)
class Given:
    """A flag as it stands in the command: `text` with its values, `name` without dashes and with _ for each - in it."""

    spelt: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.spelt.replace("-", "_")

    @property
    def value(self) -> str | None:
        return self.values[0] if self.values else None

    @property
    def text(self) -> str:
        return shlex.join([f"--{self.spelt}", *self.values])


def words(line: str) -> list[str]:
    """As a shell takes them, up to a pipe or a redirection. Raises BadCommand."""
    try:
        found = shlex.split(line, comments=True)
    except ValueError as error:
        raise BadCommand(f"{line.strip()!r} is not a shell command: {error}") from None
    return list(takewhile(lambda word: not _REDIRECTED.match(word), found))


def given(program: str, arguments: Sequence[str]) -> Iterator[Given]:
    """The flags among the arguments of `program`. Raises BadCommand if a value belongs to none."""
    name, values = "", list[str]()
    for word in [*arguments, ""]:
        if word and not _NAMED.match(word):
            if not name:
                raise BadCommand(f"{program}: {word!r} comes before the first flag")
            values.append(word)
            continue
        if name:
            yield Given(name, tuple(values))
        head, equals, value = word.partition("=")
        name, values = head.lstrip("-"), [value] if equals else []
