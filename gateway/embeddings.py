"""/v1/embeddings, of the text classifier's encoder: it was made to tell classes apart, and its name says so."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any

import msgspec
from msgspec import Struct

from gateway import body as bodies
from gateway.ask import infer_request
from gateway.failures import BadRequest, NotFound
from gateway.visit import Visit, estimate

EMBEDDING_MODEL = "text-classifier-embedding"
TOKENIZER = "text_tokenizer"
PIPELINE = "text_pipeline_ensemble"
DIMENSIONS = 384
MAX_TEXTS = 256
_AT_A_TIME = 16


class EmbeddingBody(Struct, kw_only=True, forbid_unknown_fields=True):
    model: str
    input: str | list[Any]
    encoding_format: str | None = None
    dimensions: int | None = None
    user: str | None = None


_DECODER = msgspec.json.Decoder(EmbeddingBody)


async def create(visit: Visit) -> None:
    raw = await visit.read_body()
    body = bodies.decode(raw, _DECODER)
    texts = _texts(body)
    if body.model not in (EMBEDDING_MODEL, PIPELINE):
        raise NotFound(f"the model {body.model[:64]!r} gives no embeddings", "model", "model_not_found")
    visit.check_model(body.model)
    visit.admit(1, estimate(raw, None, 1))
    places = asyncio.Semaphore(_AT_A_TIME)
    found = await asyncio.gather(*(_embedding(visit, text, place, places) for place, text in enumerate(texts)))
    visit.tally.add_prompt(sum(tokens for _, tokens in found), PIPELINE)
    encode = _as_base64 if body.encoding_format == "base64" else _as_floats
    data = [
        {"object": "embedding", "index": index, "embedding": encode(content)}
        for index, (content, _) in enumerate(found)
    ]
    tokens = visit.tally.prompt_tokens
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "model": body.model, "data": data, "usage": usage}
    await visit.exchange.reply(200, msgspec.json.encode(answer))


def _texts(body: EmbeddingBody) -> list[str]:
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise BadRequest(f"input holds {len(texts)} texts; 1 to {MAX_TEXTS} are taken", "input")
    if not all(isinstance(text, str) for text in texts):
        raise BadRequest("input must be a string or a list of strings; token ids are not taken", "input")
    if any(not text for text in texts):
        raise BadRequest("input holds an empty text", "input")
    if body.dimensions not in (None, DIMENSIONS):
        raise BadRequest(f"dimensions must be {DIMENSIONS}", "dimensions")
    if body.encoding_format not in (None, "float", "base64"):
        raise BadRequest("encoding_format must be float or base64", "encoding_format")
    return texts


async def _embedding(visit: Visit, text: str, place: int, places: asyncio.Semaphore) -> tuple[bytes, int]:
    """The 384 FP32 as bytes, and the text's tokens."""
    async with places:
        counted, found = await asyncio.gather(
            visit.gateway.infer(infer_request(TOKENIZER, ("input_ids",), text=text)),
            visit.gateway.infer(infer_request(PIPELINE, ("embedding", "truncated"), text=text)),
        )
    if any(found["truncated"][1]):
        raise BadRequest(f"input[{place}] is longer than the encoder reads", "input", "context_length_exceeded")
    return found["embedding"][1], counted["input_ids"][0][-1]


def _as_floats(content: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(content) // 4}f", content))


def _as_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
