"""What each client's file of checks shares: it runs them all against the gateway that its arguments name.

    python tests/clients/openai_python.py http://127.0.0.1:9000 [KEY]

The last line of the output is JSON: for every check "ok", or the last lines of its traceback.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

_CHECKS: list[Callable[..., Any]] = []
PROMPT = "one two three"
ENDLESS = 6000  # as a seed: the echo engine's answer goes on to max_tokens


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a check: a function, or a coroutine function, that raises if the client is not served well."""
    _CHECKS.append(function)
    return function


def run(*arguments: Any) -> None:
    """Calls each check with these."""
    found = {}
    for function in _CHECKS:
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                asyncio.run(_awaited(result))
            found[function.__name__] = "ok"
        except Exception:
            found[function.__name__] = traceback.format_exc()[-1500:]
    print(json.dumps(found))


async def _awaited(result: Any) -> None:
    await asyncio.wait_for(result, 60)


def given() -> tuple[str, str]:
    """The gateway's address and the key."""
    return sys.argv[1], (sys.argv[2:] or ["no-key"])[0]
