"""A paste taken to pieces: the commands in a shell script, notebook, Dockerfile, batch file, Python or JSON list.

What the text sets is put where it is used ($CKPT, ${CKPT:-x}, %CKPT%), and lines that go on are joined, whatever stands
between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engines.tensorrt_llm import embedded

# What a page makes of a command: dashes and quotes in print.
_PRINTED_DASHES = re.compile(r"(?<!\S)[-\u2013-\u2015]*[\u2013-\u2015]-?(?=\w)")
_PRINTED_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
# In front of a command: a prompt, a notebook's mark, a Dockerfile's instruction.
_PROMPT = re.compile(
    r"^\s*(?:\([\w.-]+\)\s+(?=[\w.-]+@|[$#>]))?"
    r"(?:(?:[\w.-]+@[\w.-]+:\S*?[$#]|\$|>|%|!|PS>|RUN|CMD|ENTRYPOINT)\s+|!(?=\S))+"
)
_MAGIC = re.compile(r"^\s*%%\w+.*$|^\s*```.*$")
_GOES_ON = re.compile(r"(?:\\|\^|`)\s*(?:#.*)?$|\s#.*\\\s*$")
_FLAG_FIRST = re.compile(r"\s*--?[A-Za-z]")  # a line that lost the sign in front of it
_REMARK = re.compile(r"^\s*(?:#|::|REM\s|//)", re.IGNORECASE)
_SETS = re.compile(
    r"""^\s*(?:export\s+|set\s+|ENV\s+|ARG\s+|\$env:)?([A-Za-z_]\w*)\s*(\+?)=\s*(\([^()]*\)|"[^"]*"|'[^']*'|[^\s"';&|]*)"""
)
_SETS_IN_DOCKER = re.compile(r"^\s*ENV\s+([A-Za-z_]\w*)\s+(\S.*)$")
_USED = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)|%([A-Za-z_]\w*)%")
_ALL_OF_ARRAY = re.compile(r"\"?\$\{([A-Za-z_]\w*)\[[@*]\]\}\"?")  # one word for each, so quotes around it go
_QUOTE_BEFORE = " \t\n=([,{:'\""


def commands(text: str) -> Iterator[str]:
    """Each as one line of a shell, in their order; also what is no command, for its reader to name."""
    plain = _PRINTED_DASHES.sub("--", text.translate(_PRINTED_QUOTES))
    values: dict[str, str] = {}
    for piece in _split(_joined(embedded.as_shell(plain))):
        line = _PROMPT.sub("", piece).strip()
        if not line or _REMARK.match(line):
            continue
        line = _filled(line, values)
        for name, adds, value in _settings(line):
            values[name] = values.get(name, "") + value if adds else value.strip()
        yield line


def _joined(text: str) -> str:
    """Lines that go on in the next one, in one; remarks between them are left out, as who wrote them meant it."""
    found: list[str] = []
    is_open = False
    for line in text.splitlines():
        if _MAGIC.match(line) or (is_open and (_REMARK.match(line) or not line.strip())):
            continue
        end = _GOES_ON.search(line)
        part = line[: end.start()] if end else line
        if is_open or (found and _FLAG_FIRST.match(line)):
            found[-1] += " " + _PROMPT.sub("", part).strip()
        else:
            found.append(part)
        is_open = end is not None
    return "\n".join(found)


def _split(text: str) -> Iterator[str]:
    """At line ends, ; && || | & outside of quotes. An apostrophe within a word opens none, and neither does one that is
    never closed."""
    start = place = 0
    while place < len(text):
        letter = text[place]
        if letter in "'\"" and (place == 0 or text[place - 1] in _QUOTE_BEFORE):
            end = text.find(letter, place + 1)
            while end > 0 and letter == '"' and text[end - 1] == "\\":
                end = text.find(letter, end + 1)
            place = end if end > 0 else place
        elif letter in "\n;&|" and not (letter == "&" and ">" in text[max(0, place - 1) : place + 2]):  # 2>&1
            yield text[start:place]
            start = place + 1
        elif letter == "#" and (place == 0 or text[place - 1] in " \t\n") and (end := text.find("\n", place)) != -1:
            yield text[start:place]
            start, place = end, end - 1
        place += 1
    yield text[start:]


def _settings(line: str) -> Iterator[tuple[str, bool, str]]:
    """The variables that the beginning of a line sets, whether it adds to them, and to what; of an array, its words."""
    if found := _SETS_IN_DOCKER.match(line):
        yield found[1], False, found[2].strip("\"'")
        return
    while found := _SETS.match(line):
        is_array = found[3].startswith("(")
        yield found[1], found[2] == "+", " " + found[3][1:-1].strip() if is_array else found[3].strip("\"'")
        line = line[found.end() :]


def _filled(line: str, values: Mapping[str, str]) -> str:
    """What nothing sets stays as it is. What a line sets for its own command counts too, as its writer meant it."""
    rest = line
    while found := _SETS.match(rest):
        rest = rest[found.end() :]
    known = {**values, **{name: value.strip() for name, _, value in _settings(line)}} if rest.strip() else values

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3] or found[4]
        return known.get(name, found[0] if found[2] is None else found[2])

    line = _ALL_OF_ARRAY.sub(lambda found: known.get(found[1], found[0]), line)
    parts = re.split(r"('[^']*')", line)
    return "".join(part if part.startswith("'") else _USED.sub(value, part) for part in parts)
