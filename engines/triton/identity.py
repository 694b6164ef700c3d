"""What a tier's model is, as far as its callers count on it: equal on two machines, one may answer for the other.

Their engines may differ: one machine has a GPU, another one none. What may not is which ids mean what, which end an
answer, how many there is room for, and whose answers they are.
"""

from __future__ import annotations

import json
from typing import Any

from bls.manifest import Manifest

Identity = dict[str, Any]
_SHOWN = 12  # characters of a value


def of(built: Manifest) -> Identity:
    """Of what lies in engines/built/<tier>."""
    return {
        "name": built.name,
        "tokenizer": built.tokenizer.sha256,
        "vocab_size": built.vocab_size,
        "context_tokens": built.context_tokens,
        "end_ids": list(built.end_ids),
        "pad_id": built.pad_id,
    }


def written(identity: Identity) -> str:
    return json.dumps(identity, sort_keys=True)


def difference(own: Identity, text: str) -> str:
    """Where what `written` gave elsewhere differs, for a message; "" where it does not."""
    try:
        theirs = json.loads(text)
    except ValueError:
        theirs = None
    if not isinstance(theirs, dict) or not theirs:
        return "it doesn't say which model it serves"
    for name, value in own.items():
        if theirs.get(name) != value:
            return f"its {name} is {_short(theirs.get(name))}, and here it is {_short(value)}"
    return ""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 3 * _SHOWN else f"{text[:_SHOWN]}..."
