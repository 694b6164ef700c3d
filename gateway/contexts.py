"""How many tokens the engines' contexts hold, for /v1/models.

The router is asked, by asking it for too many: it then says how many there are.
"""

from __future__ import annotations

import re

from gateway import ask as asks
from gateway.ask import MAX_INT32, Ask
from gateway.failures import BadRequest, Failure
from gateway.settings import Settings
from gateway.triton import Triton


async def ask(triton: Triton, settings: Settings) -> dict[str, int]:
    """By model name, the largest context for all of them; nothing while the server is away."""
    request = asks.request_of(Ask("?", False, MAX_INT32), "contexts", "", settings.timeout_s)
    try:
        async for _ in triton.stream(request, 10.0):
            pass
    except BadRequest as refusal:
        if found := re.search(r"the context of \S+ holds (\d+)", refusal.message):
            return dict.fromkeys((*settings.models, *settings.tiers.values()), int(found[1]))
    except Failure:
        pass
    return {}
