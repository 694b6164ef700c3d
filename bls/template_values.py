"""Further variables of a chat template, as engines/specs.toml and requests may set them: enable_thinking and the like.

They come as a JSON object, here called by the name that clients of other servers know: chat_template_kwargs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bls.errors import BadRequest

NAME = "chat_template_kwargs"
MAX_CHARACTERS = 1024  # of the whole object
# What a template has anyhow.
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")


def read(text: str) -> dict[str, Any]:
    """Raises BadRequest."""
    if len(text) > MAX_CHARACTERS:
        raise BadRequest(f"{NAME} has {len(text)} characters; at most {MAX_CHARACTERS} are taken")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{NAME} is not JSON: {error}") from None
    if problem := problem_of(values):
        raise BadRequest(f"{NAME} {problem}")
    return dict(values)


def problem_of(values: Any) -> str:
    """What is wrong with them, in words that follow their name; "" for nothing.

    A text of a request would stand in the prompt without any check having seen it, so none may be long.
    """
    if not isinstance(values, Mapping):
        return "must be an object of names and values"
    for name, value in values.items():
        if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED:
            return f"sets {str(name)[:40]!r}, which is no variable that may be set"
        if not isinstance(value, bool | int | float | None) and not (isinstance(value, str) and len(value) <= 32):
            return f"sets {name[:40]} to what is no boolean, number or text of at most 32 characters"
    return ""
