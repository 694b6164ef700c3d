"""Commands that stand in something else, as lines of a shell: in Python's calls, JSON's and YAML's lists, a variable.

What stands around them goes on a line of its own, so that nothing of a paste is dropped.
"""

from __future__ import annotations

import ast
import re
import shlex

_LIST = re.compile(r"([\w.]+\()?(\[[^\[\]]*\])((?:\s*,[^()\n]*)?\))?")
_TEXT = re.compile(
    r"""\b((?:[\w.]+\.)?(?:run|call|check_call|check_output|Popen|popen|system|getoutput)\()\s*"""
    r"""([fFrR]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))\s*((?:,[^()\n]*)?)\)""",
    re.DOTALL,
)
_PLAIN = re.compile(r"[\w$./=:{}@+,-]+")
_YAML_LIST = re.compile(
    r"^([ \t]*)((?:command|args|entrypoint):)[ \t]*\n((?:\1[ \t]*- (?![|>]).*(?:\n|\Z))+)", re.MULTILINE
)
_COMMAND_AND_ARGS = re.compile(r"command:\s*(\[[^\[\]]*\])\s*args:\s*(\[[^\[\]]*\])")
_ARRAY = re.compile(r"^(\s*\w+\+?=)\(([^()]*)\)", re.MULTILINE)
_OUTPUT_OF = re.compile(r"""^(\s*(?:export\s+)?\w+=)(?:"?\$\((.+)\)"?|`(.+)`)\s*$""", re.MULTILINE)
_WINDOWS_PATH = re.compile(
    r"(?<![\w\\])(?:(?:[A-Za-z]:|\.{1,2})(?:\\[\w.-]+)+|[\w.-]+(?:\\[\w.-]+)*\\[\w-]+\.(?:py|exe))(?=[\s\"']|\Z)"
)


def as_shell(text: str) -> str:
    """The same text with all of that taken out of what it stands in."""
    text = _WINDOWS_PATH.sub(lambda found: found[0].replace("\\", "/"), text)
    text = _YAML_LIST.sub(_flow_list, text)
    text = _COMMAND_AND_ARGS.sub(lambda found: f"{found[1][:-1].rstrip().rstrip(',')}, {found[2][1:]}", text)
    text = _ARRAY.sub(_on_one_line, text)
    text = _OUTPUT_OF.sub(lambda found: f"{found[1]}...\n{found[2] or found[3]}", text)
    return _LIST.sub(_of_list, _TEXT.sub(_of_text, text))


def _flow_list(found: re.Match[str]) -> str:
    items = [line.strip().removeprefix("-").strip() for line in found[3].splitlines()]
    words = [item if item[:1] in "\"'" and item[-1:] == item[:1] else repr(item) for item in items]
    return f"{found[1]}{found[2]} [{', '.join(words)}]\n"


def _on_one_line(found: re.Match[str]) -> str:
    lines = (re.sub(r"(?:^|\s)#.*", "", line).strip() for line in found[2].splitlines())
    return f"{found[1]}({' '.join(filter(None, lines))})"


def _of_text(found: re.Match[str]) -> str:
    """subprocess.run("...", shell=True): the text, and the call around it where that says more."""
    try:
        text = _word(ast.parse(found[2], mode="eval").body)
    except (SyntaxError, ValueError):
        return found[0]
    around = f"\n{found[1]}...{found[3].lstrip(', ')})" if found[3] else ""
    return f"{around}\n{text}\n"


def _of_list(found: re.Match[str]) -> str:
    """subprocess.run([...]) and RUN [...]: the words of the list, joined."""
    words = _words_of(found[2])
    if not words:
        return found[0]
    around = f"{found[1]}...{(found[3] or '').lstrip(', ')}\n" if found[1] else ""
    return f"\n{around}{' '.join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)}\n"


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
