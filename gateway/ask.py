"""One answer that the router is asked for, as a message of Triton's; and the pieces that come back."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bls import kserve

ROUTER = "llm_router"
PREPROCESSING = "preprocessing"
WHAT_FITS = -1  # max_tokens: as long as the context of the engine that answers
TEMPLATE_VALUES = "chat_template_kwargs"
MAX_INT32 = 2**31 - 1
Value = bool | int | float | str | tuple[str, ...]
_OUTPUTS = (
    "text_output", "finish_reason", "model", "reason", "words_version", "verdict", "verdict_reason", "route_info",
    "num_input_tokens", "num_output_tokens",
)  # fmt: skip
_UINT64 = {"seed"}
_TEXTS = {
    "text_output": "text", "finish_reason": "finish", "model": "model", "reason": "reason", "verdict": "verdict",
    "words_version": "words_version", "verdict_reason": "verdict_reason", "route_info": "route_info",
}  # fmt: skip
_COUNTS = {"num_input_tokens": "input_tokens", "num_output_tokens": "tokens"}


@dataclass(frozen=True)
class Ask:
    """`text` is a prompt, or with `is_chat` the JSON of messages. `more` are further inputs of the router by name."""

    text: str
    is_chat: bool
    max_tokens: int = WHAT_FITS
    stream: bool = False
    more: Mapping[str, Value] = field(default_factory=dict)
    tier: str = ""
    user: str = ""
    priority: int = 0
    template_values: str = ""  # JSON, for the model's chat template


class Piece:
    """A part of an answer. Counts are of this piece, but `input_tokens`; what isn't told (yet) is empty.

    The last one has `finish`, in the router's words.
    """

    __slots__ = ("input_tokens", "tokens", *_TEXTS.values())

    def __init__(self) -> None:
        self.text = self.finish = self.model = self.reason = ""
        self.words_version = self.verdict = self.verdict_reason = self.route_info = ""
        self.input_tokens = self.tokens = 0


def _template() -> bytes:
    request = kserve.ModelInferRequest(model_name=ROUTER)
    for name in _OUTPUTS:
        request.outputs.add(name=name)
    return bytes(request.SerializeToString())


_TEMPLATE = _template()


def request_of(ask: Ask, request_id: str, tenant: str, timeout_s: float) -> Any:
    """The ModelInferRequest of an answer."""
    request = kserve.ModelInferRequest.FromString(_TEMPLATE)
    request.id = request_id
    add_input(request, "messages" if ask.is_chat else "text_input", ask.text)
    add_input(request, "max_tokens", ask.max_tokens)
    add_input(request, "stream", ask.stream)
    for name, value in ask.more.items():
        add_input(request, name, value)
    parameters = request.parameters
    for name, text in (
        ("tier", ask.tier),
        ("user", ask.user),
        ("tenant", tenant),
        (TEMPLATE_VALUES, ask.template_values),
    ):
        if text:
            parameters[name].string_param = text
    if ask.priority:
        parameters["priority"].uint64_param = ask.priority
    parameters["timeout"].int64_param = round(timeout_s * 1e6)
    return request


def infer_request(model: str, outputs: tuple[str, ...], **inputs: Value) -> Any:
    """The ModelInferRequest of any other model."""
    request = kserve.ModelInferRequest(model_name=model)
    for name, value in inputs.items():
        add_input(request, name, value)
    for name in outputs:
        request.outputs.add(name=name)
    return request


def add_input(request: Any, name: str, value: Value) -> None:
    """A tensor [1,1], or [1,n] of several texts."""
    count = 1
    if isinstance(value, bool):
        kind, content = "BOOL", b"\1" if value else b"\0"
    elif isinstance(value, int):
        is_long = name in _UINT64
        kind, content = ("UINT64", struct.pack("<Q", value)) if is_long else ("INT32", struct.pack("<i", value))
    elif isinstance(value, float):
        kind, content = "FP32", struct.pack("<f", value)
    else:
        texts = (value,) if isinstance(value, str) else value
        kind, count, content = "BYTES", len(texts), b"".join(map(_counted, texts))
    request.inputs.add(name=name, datatype=kind, shape=(1, count))
    request.raw_input_contents.append(content)


def _counted(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "little") + encoded


def piece_of(response: Any) -> Piece:
    """The piece that a ModelInferResponse of the router holds, whatever shape its tensors have."""
    piece = Piece()
    for output, content in zip(response.outputs, response.raw_output_contents, strict=True):
        name = output.name
        if name == "text_output":  # in every piece, so it comes first
            piece.text = content[4:].decode("utf-8", "replace")
        elif (field_name := _TEXTS.get(name)) is not None:
            setattr(piece, field_name, content[4:].decode("utf-8", "replace"))
        elif (field_name := _COUNTS.get(name)) is not None:
            setattr(piece, field_name, int.from_bytes(content[:4], "little", signed=True))
    return piece
