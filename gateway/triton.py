"""The one file that speaks to Triton: one gRPC channel, shared, and a stream of its own for every answer.

A stream that has answered is left to end by itself: it is half-closed from the beginning, and cancelled only in
mid-stream. One that is cancelled in the moment of its last response keeps its model from ever unloading (Triton 2.51),
and two requests on one stream may end the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import grpc

from bls import kserve
from gateway import router_errors
from gateway.failures import Broken
from gateway.silence import Silence
from gateway.tracing import Trace

MAX_MESSAGE_BYTES = 64 << 20
_CHANNEL = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # gRPC's own waits 1 to 120 s before it looks for a server that went away again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
PROBE_S = 2.0


class Triton:
    """Must be made within the event loop that uses it."""

    def __init__(self, target: str, silent_s: float = 10.0) -> None:
        self.target = target
        self._silent_s = silent_s
        self.silence = Silence(self._answers, silent_s)
        self._channel = grpc.aio.insecure_channel(target, options=_CHANNEL)
        self._ending: set[asyncio.Task[None]] = set()
        # Each stream carries one request, so it can be spoken as a unary call: one message, then half-closed at once.
        self._stream = kserve.method(self._channel, "ModelStreamInfer", kserve.ModelStreamInferResponse, is_stream=True)
        self._infer = kserve.method(self._channel, "ModelInfer", kserve.ModelInferResponse)
        self._live = kserve.method(self._channel, "ServerLive", kserve.ServerLiveResponse)
        self._model_ready = kserve.method(self._channel, "ModelReady", kserve.ModelReadyResponse)

    async def stream(self, request: Any, deadline_s: float, trace: Trace = ()) -> AsyncGenerator[Any, None]:
        """Yields each ModelInferResponse in turn. Raises a Failure; leaving it early stops the engine."""
        call = self._stream(request, timeout=deadline_s, metadata=trace)
        has_ended = False
        try:
            with self.silence.minded(call) as waiting:
                while (message := await call.read()) is not grpc.aio.EOF:
                    waiting.since = time.monotonic()
                    if message.error_message:
                        has_ended = True
                        raise router_errors.from_message(message.error_message)
                    response = message.infer_response
                    has_ended = response.parameters["triton_final_response"].bool_param
                    yield response
                    if has_ended:
                        return
                has_ended = True
                raise Broken("the server ended the answer before its end")
        except grpc.aio.AioRpcError as error:
            has_ended = True
            raise router_errors.from_rpc(error) from None
        finally:
            if has_ended:
                self._let_end(call)
            else:
                call.cancel()

    async def infer(self, request: Any, deadline_s: float) -> dict[str, tuple[list[int], bytes]]:
        """Shape and bytes of each output of a model that is not decoupled, by name. Raises a Failure."""
        call = self._infer(request, timeout=deadline_s)
        try:
            with self.silence.minded(call):
                response = await call
        except grpc.aio.AioRpcError as error:
            raise router_errors.from_rpc(error) from None
        contents = zip(response.outputs, response.raw_output_contents, strict=True)
        return {output.name: (list(output.shape), content) for output, content in contents}

    async def is_ready(self, model: str) -> bool:
        """Whether the server answers within two seconds and has the model."""
        try:
            response = await self._model_ready(kserve.ModelReadyRequest(name=model), timeout=PROBE_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(response.ready)

    async def _answers(self) -> bool:
        """Whether the server says anything in time; one that isn't there has closed its connections."""
        try:
            await self._live(kserve.ServerLiveRequest(), timeout=self._silent_s / 2)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    async def close(self) -> None:
        """Waits for streams that are about to end, then closes the connection."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=PROBE_S)
        await self._channel.close()

    def _let_end(self, call: Any) -> None:
        """Reads the call to its end behind the client's back: a call that is dropped is cancelled."""
        if not call.done():
            task = asyncio.get_running_loop().create_task(_read_to_end(call))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


async def _read_to_end(call: Any) -> None:
    with suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
