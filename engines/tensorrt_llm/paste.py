"""A paste taken to pieces: the commands in a shell script, notebook, Dockerfile, batch file, Python or JSON list.

What the text sets is put where it is used ($CKPT, ${CKPT:-x}, %CKPT%), and lines that go on are joined, whatever stands
between them.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping

# What a page makes of a command: dashes and quotes in print.
_PRINTED_DASHES = re.compile(r"(?<!\S)[-\u2013-\u2015]*[\u2013-\u2015]-?(?=\w)")
_PRINTED_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
# In front of a command: a prompt, a notebook's mark, a Dockerfile's instruction.
_PROMPT = re.compile(r"^\s*(?:(?:\$|>|%|!|PS>|RUN|CMD|ENTRYPOINT)\s+|!(?=\S))+")
_MAGIC = re.compile(r"^\s*%%\w+.*$|^\s*```.*$")
_GOES_ON = re.compile(r"(?:\\|\^|`)\s*(?:#.*)?$|\s#.*\\\s*$")
_FLAG_FIRST = re.compile(r"\s*--?[A-Za-z]")  # a line that lost the sign in front of it
_REMARK = re.compile(r"^\s*(?:#|::|REM\s|//)", re.IGNORECASE)
_SETS = re.compile(
    r"""^\s*(?:export\s+|set\s+|ENV\s+|ARG\s+|\$env:)?([A-Za-z_]\w*)\s*=\s*("[^"]*"|'[^']*'|[^\s"';&|]*)"""
)
_SETS_IN_DOCKER = re.compile(r"^\s*ENV\s+([A-Za-z_]\w*)\s+(\S.*)$")
_USED = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)|%([A-Za-z_]\w*)%")
_LIST = re.compile(r"([\w.]+\()?(\[[^\[\]]*\])((?:\s*,[^()\n]*)?\))?")
_PLAIN = re.compile(r"[\w$./=:{}@+,-]+")
_QUOTE_BEFORE = " \t\n=([,{:'\""


def commands(text: str) -> Iterator[str]:
    """Each as one line of a shell, in their order; also what is no command, for its reader to name."""
    plain = _PRINTED_DASHES.sub("--", text.translate(_PRINTED_QUOTES))
    values: dict[str, str] = {}
    for piece in _split(_joined(_without_lists(plain))):
        line = _PROMPT.sub("", piece).strip()
        if not line or _REMARK.match(line):
            continue
        line = _filled(line, values)
        values.update(_set_by(line))
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


def _set_by(line: str) -> dict[str, str]:
    """The variables that the beginning of a line sets, for it and for those behind it."""
    if found := _SETS_IN_DOCKER.match(line):
        return {found[1]: found[2].strip("\"'")}
    values: dict[str, str] = {}
    while found := _SETS.match(line):
        values[found[1]] = found[2].strip("\"'")
        line = line[found.end() :]
    return values


def _filled(line: str, values: Mapping[str, str]) -> str:
    """What the line itself sets counts as well, as its writer meant it. What nothing sets stays as it is."""
    known = {**values, **_set_by(line)}

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3] or found[4]
        return known.get(name, found[0] if found[2] is None else found[2])

    parts = re.split(r"('[^']*')", line)
    return "".join(part if part.startswith("'") else _USED.sub(value, part) for part in parts)


def _without_lists(text: str) -> str:
    """subprocess.run([...]) and RUN [...] as lines of a shell: the words of each list, joined."""

    def line(found: re.Match[str]) -> str:
        words = _words_of(found[2])
        if not words:
            return found[0]
        around = f"{found[1] or ''}...{(found[3] or '').lstrip(', ')}\n" if found[1] else ""
        return f"\n{around}{' '.join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)}\n"

    return _LIST.sub(line, text)


def _words_of(text: str) -> list[str]:
    """Of a list as Python or JSON write it; a name in it is a variable. Empty if it's something else."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return []
    elements = node.elts if isinstance(node, ast.List) else []
    if not any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in elements):
        return []
    return [word for each in elements for word in [_word(each)]]


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Call) and len(node.args) == 1:  # str(x), os.fspath(x)
        return _word(node.args[0])
    if isinstance(node, ast.JoinedStr):
        return "".join(_word(value) for value in node.values)
    named = node.value if isinstance(node, ast.FormattedValue) else node
    return f"${{{named.id}}}" if isinstance(named, ast.Name) else ast.unparse(named)
