"""What the client is asked and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bls.contract import LLAMA_7B_ENSEMBLE, ROUTER
from scripts.client import tensors
from scripts.client.failure import RequestFailed

TEXT_TENSORS = {ROUTER: ("text_input", "text_output"), LLAMA_7B_ENSEMBLE: ("input_text", "output_text")}
STREAMED = {ROUTER: ("text_output", "finish_reason", "model", "reason", "num_input_tokens", "num_output_tokens")}


@dataclass(frozen=True)
class Request:
    """What is asked of a model. `inputs`: further ones by name, such as {"temperature": 0.7, "stop_words": ["."]}.

    `deadline_s` is the client's: everything, waiting and retries included, or the request fails. `timeout_s` is the
    server's: how long it may queue, and then run until it ends with what it has. `priority` 1 is the highest, 0 the
    default.
    """

    text: str
    max_tokens: int = 64
    model: str = ROUTER
    inputs: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    timeout_s: float | None = None
    deadline_s: float | None = None


@dataclass(frozen=True)
class Piece:
    """A part of an answer as it came. The last one has `is_last`, and what is only known then; None: not told.

    A `finish_reason` of engine_error says that the engine broke and the text is what came before.
    """

    text: str
    tokens: int | None = None
    is_last: bool = False
    finish_reason: str = ""
    model: str = ""
    reason: str = ""
    input_tokens: int | None = None


@dataclass(frozen=True)
class Answer:
    """A whole answer. What the model does not tell is empty or None."""

    text: str
    finish_reason: str = ""
    model: str = ""
    reason: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


def joined(pieces: Sequence[Piece]) -> Answer:
    """The answer that these are all pieces of."""
    counts = [piece.tokens for piece in pieces if piece.tokens is not None]
    text, last = "".join(piece.text for piece in pieces), pieces[-1]
    tokens = sum(counts) if counts else None
    return Answer(text, last.finish_reason, last.model, last.reason, last.input_tokens, tokens)


def unstreamed(request: Request) -> Request:
    """The same for one response with everything."""
    return replace(request, inputs={"stream": False, **request.inputs}) if request.model in STREAMED else request


def values(request: Request) -> dict[str, Any]:
    """What the model's input tensors are to hold. Raises RequestFailed for a model that takes no text."""
    if request.model not in TEXT_TENSORS:
        raise RequestFailed(
            "INVALID_ARGUMENT", f"{request.model} does not answer text; ask {' or '.join(TEXT_TENSORS)}"
        )
    found: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        **({"stream": True} if request.model in STREAMED else {}),
    }
    if "messages" not in request.inputs:
        found[TEXT_TENSORS[request.model][0]] = request.text
    return {**found, **request.inputs}


def piece_of(result: Any) -> Piece:
    """A response of a streaming model."""
    arrays = tensors.outputs(result)
    words = {name: arrays[name].flat[0].decode() for name in ("finish_reason", "model", "reason") if name in arrays}
    return Piece(
        arrays["text_output"].flat[0].decode(errors="replace"),
        tokens=int(arrays["num_output_tokens"].flat[0]),
        is_last=result.get_response().parameters["triton_final_response"].bool_param,
        input_tokens=int(arrays["num_input_tokens"].flat[0]),
        **words,
    )
