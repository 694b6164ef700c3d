"""A gRPC server that answers as llm_router does on Triton 2.51; tests/gateway_cases.py holds both to the same.

It runs in a thread of its own, so that a gateway's process can be tested against it. The answer to a prompt is the
prompt, word by word; `seed` says how, as in tests/server/echo_repository.py.
"""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from bls import kserve
from bls.errors import BadRequest
from bls.tokens.messages import read_messages
from tests.server.echo_repository import ENDLESS, FAILS_FIRST, FAILS_LATER, SILENT

CONTEXT = 8192
REFUSED_WORD = "bomb"  # a prompt that holds it is refused
MODELS = ("llm_router", "preprocessing", "text_tokenizer", "text_pipeline_ensemble")
HIDDEN_WORD = "secret"  # in a structured answer, the word lists hide it
ROUTE = {"policy": "p1", "line": 7}


class FakeRouter:
    """`with FakeRouter() as fake:`. The next streams end with an error as `failures` says: (message, words before it).

    `away`: what the server says of the router while it has none, "" for a router that is there.
    """

    def __init__(self, port: int = 0) -> None:
        self.failures: list[tuple[str, int]] = []
        self.requests: list[dict[str, Any]] = []
        self.away = ""
        self.running = self.stopped = self.sent = 0
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeRouter:
        self._thread.start()
        self._do(self._start())
        return self

    def stop(self) -> None:
        """As a server that dies: its streams break, and nobody listens any more."""
        self._do(self._server.stop(0))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """As a server that is stopped by SIGSTOP: its connections stay open, and it says nothing."""
        goes_on = threading.Event()
        self._loop.call_soon_threadsafe(goes_on.wait)
        try:
            yield
        finally:
            goes_on.set()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._server = grpc.aio.server()
        handlers = {
            "ModelStreamInfer": _handler(grpc.stream_stream_rpc_method_handler, self.stream, kserve.ModelInferRequest),
            "ModelInfer": _handler(grpc.unary_unary_rpc_method_handler, self.infer, kserve.ModelInferRequest),
            "ServerLive": _handler(grpc.unary_unary_rpc_method_handler, self.live, kserve.ServerLiveRequest),
            "ModelReady": _handler(grpc.unary_unary_rpc_method_handler, self.ready, kserve.ModelReadyRequest),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(kserve.SERVICE, handlers),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.target = f"127.0.0.1:{self.port}"
        await self._server.start()

    async def live(self, request: Any, context: Any) -> Any:
        return kserve.ServerLiveResponse(live=True)

    async def ready(self, request: Any, context: Any) -> Any:
        return kserve.ModelReadyResponse(ready=request.name in MODELS and not self.away)

    async def infer(self, request: Any, context: Any) -> Any:
        values = inputs_of(request)
        if request.model_name == "text_tokenizer":
            ids = [1] * (len(values["text"].split()) + 2)
            return _response(input_ids=struct.pack(f"<{len(ids)}q", *ids), shapes={"input_ids": [1, len(ids)]})
        if request.model_name == "preprocessing":
            return _response(INPUT_ID=b"", REQUEST_INPUT_LEN=struct.pack("<i", len(values["MESSAGES"].split())))
        embedding = struct.pack("<384f", *(float(len(values["text"])),) * 384)
        return _response(embedding=embedding, truncated=bytes([len(values["text"]) > 2000]))

    async def stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            self.running += 1
            has_ended = False
            metadata = {name: str(value) for name, value in context.invocation_metadata()}
            try:
                async for message in self._answer(request, metadata):
                    is_last = message.infer_response.parameters["triton_final_response"].bool_param
                    has_ended = bool(message.error_message) or is_last
                    yield message
            finally:
                self.running -= 1
                self.stopped += not has_ended

    async def _answer(self, request: Any, metadata: dict[str, str]) -> AsyncIterator[Any]:
        values = inputs_of(request)
        parameters = dict(request.parameters.items())
        self.requests.append({**values, "id": request.id, "parameters": parameters, "metadata": metadata})
        if error := self._refusal(values):
            yield kserve.ModelStreamInferResponse(error_message=error)
            return
        failure = self.failures.pop(0) if self.failures else ("", -1)
        pieces = _pieces(values)
        kind, step_s = values.get("seed", 0) // 1000, values.get("seed", 0) % 1000 / 1000
        if kind == SILENT:
            await asyncio.Event().wait()
        if kind == FAILS_FIRST:
            failure = ("[INTERNAL] the engine failed", 0)
        is_refused = REFUSED_WORD in _text(values)
        pieces = ["No."] if is_refused else pieces
        reason = "refused" if is_refused else _reason(values, pieces)
        for place, group in enumerate([pieces] if not values["stream"] else [[piece] for piece in pieces]):
            if place == failure[1]:
                yield kserve.ModelStreamInferResponse(error_message=failure[0])
                return
            await asyncio.sleep(step_s * len(group))
            is_broken = kind == FAILS_LATER and place == 2
            is_last = is_broken or not values["stream"] or place == len(pieces) - 1
            self.sent += len(group)
            finish = "engine_error" if is_broken else reason if is_last else ""
            yield _piece("".join(group), len(group), finish, place == 0, values)

    def _refusal(self, values: dict[str, Any]) -> str:
        """As the core or the router would say it; "" if the request is well."""
        limit = values["max_tokens"]
        if self.away:
            return self.away
        try:
            _text(values)
        except BadRequest as error:
            return str(error)
        if limit < 1 and limit != -1:
            return f"[BAD_REQUEST] max_tokens is {limit}; it must be a single value > 0"
        tokens = len(_text(values).split())
        if tokens + limit > CONTEXT:
            return (
                f"[BAD_REQUEST] the prompt has {tokens} tokens and max_tokens is {limit}, together {tokens + limit}; "
                f"the context of tensorrt_llm_small holds {CONTEXT}"
            )
        return ""


def inputs_of(request: Any) -> dict[str, Any]:
    """The request's inputs by name as Python values."""
    return {
        tensor.name: _value(tensor, content)
        for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)
    }


def _value(tensor: Any, content: bytes) -> Any:
    if tensor.datatype == "BYTES":
        texts = []
        while content:
            size = int.from_bytes(content[:4], "little")
            texts.append(content[4 : 4 + size].decode())
            content = content[4 + size :]
        return texts[0] if tensor.name not in ("stop_words", "bad_words") else texts
    kind = {"BOOL": "?", "INT32": "i", "UINT64": "Q", "FP32": "f"}[tensor.datatype]
    return struct.unpack(f"<{kind}", content)[0]


def _text(values: dict[str, Any]) -> str:
    if "messages" in values:
        return " ".join(message["content"] for message in read_messages(values["messages"]))
    return str(values["text_input"])


def _pieces(values: dict[str, Any]) -> list[str]:
    words = _text(values).split(" ")
    pieces = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
    limit = values["max_tokens"] if values["max_tokens"] > 0 else CONTEXT
    if values.get("seed", 0) // 1000 == ENDLESS:
        pieces *= limit
    for word in values.get("stop_words", []):
        text = "".join(pieces).partition(word)[0]
        pieces = pieces[: len(text.split(" "))] if word in "".join(pieces) else pieces
    return pieces[:limit]


def _reason(values: dict[str, Any], pieces: list[str]) -> str:
    if len(pieces) == values["max_tokens"]:
        return "length"
    return "stop_word" if len(pieces) < len(_text(values).split(" ")) else "stop"


def _piece(text: str, tokens: int, finish: str, is_first: bool, values: dict[str, Any]) -> Any:
    words = {"text_output": text}
    if finish:
        words["finish_reason"] = finish
    if finish or is_first:
        model = "none" if finish == "refused" else "tensorrt_llm_small"
        is_hidden = "guided_decoding_guide_type" in values and HIDDEN_WORD in _text(values)
        hidden = {"filtered_json": True} if is_hidden else {}
        words |= {"model": model, "reason": "default", "words_version": "w1", "route_info": json.dumps(ROUTE | hidden)}
    contents = {name: _counted(word) for name, word in words.items()}
    contents["num_output_tokens"] = struct.pack("<i", tokens)
    contents["num_input_tokens"] = struct.pack("<i", len(_text(values).split()))
    message = kserve.ModelStreamInferResponse(infer_response=_response({name: [1] for name in words}, **contents))
    message.infer_response.parameters["triton_final_response"].bool_param = bool(finish)
    return message


def _counted(text: str) -> bytes:
    return len(text.encode()).to_bytes(4, "little") + text.encode()


def _response(shapes: dict[str, list[int]] | None = None, **contents: bytes) -> Any:
    response = kserve.ModelInferResponse()
    for name, content in contents.items():
        response.outputs.add(name=name, shape=(shapes or {}).get(name, [1, 1]))
        response.raw_output_contents.append(content)
    return response


def _handler(make: Any, function: Any, request: Any) -> Any:
    return make(function, request_deserializer=request.FromString, response_serializer=lambda m: m.SerializeToString())
