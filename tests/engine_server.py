"""An engine server in a process of its own that a test may kill or freeze: gRPC as Triton speaks it, a metrics page.

    python -m tests.engine_server HOST GRPC_PORT METRICS_PORT

Its engine answers with its prompt, as `seed` says (tests/server/echo_repository.py). GET /set?busy=1&ready=0 at the
metrics port changes what it does, GET /told says what it was asked.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import grpc
import numpy as np

from bls import kserve
from bls.contract import ENGINE_CONTROL
from bls.paths import ROOT
from engines.remote import messages
from tests.server.echo_repository import ENDLESS, FAILS_FIRST, FAILS_LATER, SILENT
from tests.waiting import eventually

DEFAULTS = {
    "ready": "1",
    "busy": "0",
    "waiting": "0",
    "reused": "0",
    "draining": "0",
    "unavailable": "0",
    "truncated": "0",
    "padding": "0",
    "hangs": "0",
    "identity": "{}",
}

_NOTHING = {"started": 0, "stopped": 0, "cancelled": 0, "looks": 0}


class EngineServer:
    """One such process, on 127.0.0.1 where no other address is given. `start` again after it was killed."""

    def __init__(self, grpc_port: int, metrics_port: int, host: str = "127.0.0.1", **values: str) -> None:
        self.name = f"{host}:{grpc_port}"
        self.host, self.grpc_port, self.metrics_port = host, grpc_port, metrics_port
        self._values = values
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EngineServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def start(self) -> None:
        words = [sys.executable, "-m", "tests.engine_server", self.host, str(self.grpc_port), str(self.metrics_port)]
        self._process = subprocess.Popen(words, cwd=ROOT)
        assert eventually(self._answers, 30)
        self.set(**self._values)

    def reset(self) -> None:
        """As if it had just been started, which it is if it was killed."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        assert eventually(lambda: self.told()["running"] == 0)
        self._get("/reset")
        self.set(**self._values)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def set(self, **values: Any) -> None:
        self._get(f"/set?{urlencode(values)}")

    def told(self) -> dict[str, Any]:
        """started, stopped, cancelled, running: of requests; ids: the prompts of those that were started; looks: how
        often it was asked whether its model is ready."""
        found: dict[str, Any] = json.loads(self._get("/told"))
        return found

    def _answers(self) -> bool:
        try:
            self._get("/told")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> str:
        connection = http.client.HTTPConnection(self.host, self.metrics_port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()


class _Engine:
    def __init__(self) -> None:
        self.values = dict(DEFAULTS)
        self.told: dict[str, Any] = {**_NOTHING, "running": 0, "ids": []}
        self.stops: dict[str, asyncio.Event] = {}

    def is_set(self, name: str) -> bool:
        return self.values[name] == "1"

    async def ready(self, request: Any, context: Any) -> Any:
        self.told["looks"] += 1
        return kserve.ModelReadyResponse(ready=self.is_set("ready"))

    async def infer(self, request: Any, context: Any) -> Any:
        assert request.model_name == ENGINE_CONTROL
        (output,) = (each.name for each in request.outputs)
        response = kserve.ModelInferResponse(model_name=ENGINE_CONTROL)
        if output == "identity":
            text = self.values["identity"].encode()
            response.outputs.add(name=output, datatype="BYTES", shape=[1, 1])
            response.raw_output_contents.append(len(text).to_bytes(4, "little") + text)
            return response
        stopped = self.stops.get(request.raw_input_contents[1][4:].decode())
        if stopped:
            stopped.set()
        response.outputs.add(name=output, datatype="BOOL", shape=[1, 1])
        response.raw_output_contents.append(b"\1")
        return response

    async def stream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if self.is_set("busy"):
            yield kserve.ModelStreamInferResponse(error_message="[BUSY] the engine's queue is full; retry after 1 s")
            return
        if self.is_set("unavailable"):
            yield kserve.ModelStreamInferResponse(error_message="[UNAVAILABLE] the engine is being started again")
            return
        stopped = self.stops[request.id] = asyncio.Event()
        self.told["started"] += 1
        self.told["running"] += 1
        has_ended = False
        try:
            async for message in self._answer(request, stopped):
                has_ended = bool(message.error_message) or messages.is_final(message.infer_response)
                yield message
        finally:
            self.told["running"] -= 1
            self.told["cancelled"] += not has_ended
            self.stops.pop(request.id, None)

    async def _answer(self, request: Any, stopped: asyncio.Event) -> AsyncIterator[Any]:
        found = _inputs(request)
        ids = found["input_ids"].reshape(-1).tolist()
        self.told["ids"].append(ids[:4])
        script = int(found["seed"].flat[0]) if "seed" in found else 0
        kind, step_s = script // 1000, script % 1000 / 1000
        limit = int(found["request_output_len"].flat[0])
        answer = (ids * -(-limit // len(ids)))[:limit] if kind == ENDLESS else ids[:limit]
        if kind == FAILS_FIRST:
            yield kserve.ModelStreamInferResponse(error_message="[INTERNAL] told to fail")
            return
        if kind == SILENT:
            await stopped.wait()
        for place, token in enumerate(answer):
            if step_s and not stopped.is_set():
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(stopped.wait(), step_s)
            if stopped.is_set():
                break
            if kind == FAILS_LATER and place == 2:
                yield kserve.ModelStreamInferResponse(error_message="[INTERNAL] told to fail")
                return
            if self.is_set("truncated") and place == 2:
                return
            padded = [token] + [0] * int(self.values["padding"])
            yield kserve.ModelStreamInferResponse(infer_response=_response(padded, place == len(answer) - 1, 1))
        if stopped.is_set():
            self.told["stopped"] += 1
            yield kserve.ModelStreamInferResponse(infer_response=_response([], True))

    async def page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
        if path == "/reset":
            self.values, self.told = dict(DEFAULTS), {**self.told, **_NOTHING, "ids": []}
        if path.startswith("/set"):
            self.values.update(parse_qsl(urlsplit(path).query))
        if path == "/metrics" and self.is_set("hangs"):
            return
        text = json.dumps(self.told) if path == "/told" else self._metrics()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        writer.close()

    def _metrics(self) -> str:
        found = {"active": self.told["running"], "waiting": self.values["waiting"], "max": 32}
        name = 'nv_trt_llm_request_metrics{{model="{}",version="1",request_type="{}"}} {}'
        models = ("tensorrt_llm_small", "tensorrt_llm_large")
        lines = [name.format(model, kind, value) for model in models for kind, value in found.items()]
        blocks = 'nv_trt_llm_kv_cache_block_metrics{{model="{}",version="1",kv_cache_block_type="reused"}} {}'
        lines += [blocks.format(model, self.values["reused"]) for model in models]
        return "\n".join([*lines, f"llm_router_server_draining {self.values['draining']}", ""])


def _inputs(request: Any) -> dict[str, Any]:
    as_outputs = kserve.ModelInferResponse(raw_output_contents=request.raw_input_contents)
    for tensor in request.inputs:
        as_outputs.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    return messages.tensors(as_outputs)


def _response(ids: list[int], is_final: bool, length: int = 0) -> Any:
    response = kserve.ModelInferResponse()
    response.parameters["triton_final_response"].bool_param = is_final
    for name, array in (
        ("output_ids", np.array([[ids]], np.int32)),
        ("sequence_length", np.array([[length]], np.int32)),
    ):
        response.outputs.add(
            name=name, datatype="INT32", shape=array.reshape((1, 1, -1) if name == "output_ids" else (1, 1)).shape
        )
        response.raw_output_contents.append(array.tobytes())
    return response


async def _serve(host: str, grpc_port: int, metrics_port: int) -> None:
    engine = _Engine()
    made = grpc.method_handlers_generic_handler(kserve.SERVICE, {
        "ModelReady": _handler(grpc.unary_unary_rpc_method_handler, engine.ready, kserve.ModelReadyRequest),
        "ModelInfer": _handler(grpc.unary_unary_rpc_method_handler, engine.infer, kserve.ModelInferRequest),
        "ModelStreamInfer": _handler(grpc.unary_stream_rpc_method_handler, engine.stream, kserve.ModelInferRequest),
    })  # fmt: skip
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((made,))
    server.add_insecure_port(f"{host}:{grpc_port}")
    await server.start()
    await asyncio.start_server(engine.page, host, metrics_port)
    await server.wait_for_termination()


def _handler(make: Any, function: Any, request: Any) -> Any:
    return make(
        function, request_deserializer=request.FromString, response_serializer=lambda each: each.SerializeToString()
    )


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
