"""Compares tensorrt_llm.llmapi with tests/llmapi_names.toml, and prints what differs; exit status 1 if anything does.

In the container, where the library is the real one: python3 -m tests.llmapi_names
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from engines.specs import tomllib

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def differences(llmapi: Any) -> Iterator[str]:
    """One line for each name that is missing or has another default."""
    for path, wanted in TABLE["arguments"].items():
        found = _find(llmapi, path)
        if found is None:
            yield f"{path} is missing"
            continue
        parameters = inspect.signature(found).parameters
        for name, default in wanted.items():
            if name not in parameters:
                yield f"{path} has no argument {name}"
            elif default != "made" and _shown(parameters[name].default) != default:
                yield f"{path}: {name} is {_shown(parameters[name].default)!r} by default, not {default!r}"
    for name, members in TABLE["members"].items():
        found = _find(llmapi, name)
        if found is None:
            yield f"{name} is missing"
        else:
            yield from (f"{name} has no {member}" for member in members if not hasattr(found, member))


def _find(llmapi: Any, path: str) -> Any:
    found = llmapi
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _shown(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, Enum):
        return default.name if isinstance(default.value, int) else default.value
    return "none" if default is None else default


def main() -> int:
    found = list(differences(importlib.import_module("tensorrt_llm.llmapi")))
    print("\n".join(found) or "as in tests/llmapi_names.toml")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
