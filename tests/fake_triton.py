"""A gRPC server that answers like llm_router before echo engines; tests/client_cases.py holds both to the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from bls.contract import LLAMA_7B_ENSEMBLE, PREPROCESSING, ROUTER, SMALL
from tests.server.echo_repository import ENDLESS, FAILS_LATER, SILENT

NUMPY = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}
TEXT = {ROUTER: "text_input", LLAMA_7B_ENSEMBLE: "input_text", PREPROCESSING: "QUERY"}


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Start it with `async with`. The next requests fail as `failures` says: (code, message, words before).

    With `credentials` it speaks TLS alone.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.failures: list[tuple[str, str, int]] = []
        self.requests: list[Any] = []
        self.peers: set[str] = set()
        self.running = self.most_running = self.stops = 0
        self._server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        add = self._server.add_secure_port if credentials else self._server.add_insecure_port
        self.url = f"127.0.0.1:{add('127.0.0.1:0', *([credentials] if credentials else []))}"

    async def __aenter__(self) -> FakeTriton:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)

    def started(self) -> int:
        return len(self.requests)

    def stopped(self) -> int:
        return self.stops

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ModelReadyResponse(ready=request.name in TEXT)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        values = await self._begin(request, context)
        words = texts(values[TEXT[request.model_name]])[0].split()
        if request.model_name == PREPROCESSING:
            return response({"INPUT_ID": np.arange(len(words), dtype=np.int32)[None]})
        await (asyncio.Event().wait() if words == ["wait"] else asyncio.sleep(0.01))
        return response({"output_text": text_array(" ".join(words))})

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            self.running += 1
            self.most_running = max(self.running, self.most_running)
            has_ended = False
            try:
                async for message in self._answer(request, context):
                    has_ended = message.parameters["triton_final_response"].bool_param
                    yield service_pb2.ModelStreamInferResponse(infer_response=message)
            except grpc.aio.AbortError:
                has_ended = True
                raise
            finally:
                self.running -= 1
                self.stops += not has_ended

    async def _answer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        failure = self.failures[0] if self.failures else None
        values = await self._begin(request, context)
        script = int(values["seed"].flat[0]) if "seed" in values else 0
        kind, step_s = script // 1000, script % 1000 / 1000
        limit = int(values["max_tokens"].flat[0])
        if limit < 1:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"[BAD_REQUEST] max_tokens is {limit}; it must be a single value > 0"
            )
        words = texts(values["text_input"])[0].split(" ")
        pieces = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
        if kind == ENDLESS:
            pieces = pieces * limit
        time_left = (
            asyncio.sleep(request.parameters["timeout"].int64_param / 1e6) if "timeout" in request.parameters else None
        )
        if kind == SILENT:
            await (time_left or asyncio.Event().wait())
            yield router_response("", 0, "timeout")
            return
        if time_left:
            time_left.close()
        shown = pieces[:limit]
        whole = not bool(values["stream"].flat[0])
        for place, piece in enumerate([shown] if whole else shown):
            await asyncio.sleep(step_s * len(shown) if whole else step_s)
            if kind == FAILS_LATER and whole:
                await context.abort(grpc.StatusCode.INTERNAL, "[INTERNAL] the engine failed in mid-stream")
            if kind == FAILS_LATER and place == 2:
                yield router_response("", 0, "engine_error")
                return
            if failure and place == failure[2]:
                await context.abort(grpc.StatusCode[failure[0]], failure[1])
            is_last = whole or place == len(shown) - 1
            reason = ("length" if len(shown) < len(pieces) or limit == len(pieces) else "stop") if is_last else ""
            yield router_response("".join(piece), len(shown) if whole else 1, reason)

    async def _begin(self, request: Any, context: Any) -> dict[str, Any]:
        """The tensors of a request, unless it is to fail at once."""
        self.requests.append(request)
        self.peers.add(context.peer())
        if self.failures:
            code, message, words_before = self.failures.pop(0)
            if words_before == 0:
                await context.abort(grpc.StatusCode[code], message)
        if request.model_name not in TEXT:
            message = f"Request for unknown model: '{request.model_name}' is not found"
            await context.abort(grpc.StatusCode.NOT_FOUND, message)
        return {
            tensor.name: array(tensor, content)
            for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)
        }


def array(tensor: Any, content: bytes) -> Any:
    found = (
        deserialize_bytes_tensor(content)
        if tensor.datatype == "BYTES"
        else np.frombuffer(content, NUMPY[tensor.datatype])
    )
    return found.reshape(tuple(tensor.shape))


def texts(values: Any) -> list[str]:
    return [value.decode() for value in values.flat]


def text_array(text: str) -> Any:
    return np.array([text.encode()], dtype=np.object_)


def router_response(text: str, tokens: int, finish_reason: str) -> Any:
    counts = {"num_output_tokens": np.array([[tokens]], np.int32), "num_input_tokens": np.array([[3]], np.int32)}
    words = {"finish_reason": finish_reason, "model": SMALL, "reason": "default"} if finish_reason else {}
    arrays = {"text_output": text_array(text), **counts, **{name: text_array(word) for name, word in words.items()}}
    return response(arrays, final=bool(finish_reason))


def response(arrays: dict[str, Any], final: bool = True) -> Any:
    message = service_pb2.ModelInferResponse()
    message.parameters["triton_final_response"].bool_param = final
    for name, values in arrays.items():
        is_text = values.dtype == np.object_
        message.outputs.add(name=name, datatype="BYTES" if is_text else "INT32", shape=values.shape)
        message.raw_output_contents.append(serialize_byte_tensor(values).item() if is_text else values.tobytes())
    return message
