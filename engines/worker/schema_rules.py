"""What a JSON schema may not hold, whatever the library: depth that costs seconds, references that lead outside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bls.errors import BadRequest

MAX_LEVELS = 100  # An object in an object is two: `properties` lies between them.
_DATA = ("const", "enum", "default", "examples")  # Their values are no schemas.


def check_schema(text: str) -> None:
    """Raises BadRequest. What is no JSON at all is left to the library, which says where it is wrong."""
    try:
        schema = json.loads(text)
    except RecursionError:
        raise BadRequest(f"guided_decoding_guide is nested too deep; at most {MAX_LEVELS} levels are taken") from None
    except ValueError:
        return
    for level, found in _objects(schema):
        if level > MAX_LEVELS:
            raise BadRequest(f"guided_decoding_guide is nested too deep; at most {MAX_LEVELS} levels are taken")
        reference = found.get("$ref") if isinstance(found, dict) else None
        if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
            raise BadRequest(
                f"guided_decoding_guide has the $ref {reference[:80]!r}; only # and #/... are taken, "
                "which lie in the schema itself"
            )


def _objects(schema: Any) -> Iterator[tuple[int, Any]]:
    """Each object and array of the schema with its level, without recursion."""
    pending = [(1, schema)]
    while pending:
        level, found = pending.pop()
        if isinstance(found, dict):
            yield level, found
            pending += [(level + 1, value) for key, value in found.items() if key not in _DATA]
        elif isinstance(found, list):
            yield level, found
            pending += [(level + 1, value) for value in found]
