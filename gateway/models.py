"""/v1/models: `auto` first, which leaves the choice to the router's policy, then its tiers, then the encoder."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.embeddings import EMBEDDING_MODEL, PIPELINE
from gateway.failures import NotFound
from gateway.visit import AUTO, Visit

OWNER = "llm_router"


async def listed(visit: Visit) -> None:
    names = _names(visit)
    if EMBEDDING_MODEL in names and not await visit.gateway.triton.is_ready(PIPELINE):
        names.remove(EMBEDDING_MODEL)
    data = [_model(visit, name) for name in names]
    await visit.exchange.reply(200, msgspec.json.encode({"object": "list", "data": data}))


async def one(visit: Visit) -> None:
    name = visit.exchange.path.removeprefix("/v1/models/")
    aliases = (*AUTO, *visit.gateway.settings.tiers.values())
    if name not in _names(visit) and (name not in aliases or (visit.key.models and name not in visit.key.models)):
        raise NotFound(f"the model {name[:64]!r} does not exist", "model", "model_not_found")
    await visit.exchange.reply(200, msgspec.json.encode(_model(visit, name)))


def _names(visit: Visit) -> list[str]:
    names = (*visit.gateway.settings.models, EMBEDDING_MODEL)
    return [name for name in names if not visit.key.models or name in visit.key.models]


def _model(visit: Visit, name: str) -> dict[str, Any]:
    model = {"id": name, "object": "model", "created": visit.gateway.created, "owned_by": OWNER}
    if (tokens := visit.gateway.contexts.get(name)) is not None:
        model["max_model_len"] = tokens
    return model
