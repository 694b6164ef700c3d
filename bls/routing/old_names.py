"""Names that policy files of the last release use: still taken, and told by `scripts/policy check`.

All of it goes with the next release, with bls/decision.py and bls/prompt_settings.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

_API = "bls.policy_api"
_SIGNAL = "language_"


def new_signal(name: str) -> str:
    """`language_zh` is `script_zh` today."""
    return f"script_{name.removeprefix(_SIGNAL)}" if name.startswith(_SIGNAL) else name


def with_new_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Prompt, as an example or a log of decisions names them."""
    renamed = {"script" if name == "language" else name: value for name, value in fields.items()}
    if signals := renamed.get("signals"):
        renamed["signals"] = {new_signal(name): score for name, score in signals.items()}
    return renamed


def old_names(source: bytes) -> list[tuple[int, str]]:
    """The line of each old name in a policy's source, and what it is called today."""
    return sorted(set(_found(ast.parse(source))))


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "language":
            yield node.lineno, "prompt.language is prompt.script today: it never was a language"
        elif isinstance(node, ast.keyword) and node.arg == "language":
            yield node.value.lineno, "language= is script= today"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_SIGNAL):
            yield node.lineno, f"the signal {node.value} is {new_signal(node.value)} today"
        elif isinstance(node, ast.Name) and node.id == "Language":
            yield node.lineno, "the check Language is Script today"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bls.") and node.module != _API:
            yield node.lineno, f"what {node.module} holds for policies is in {_API} today"
