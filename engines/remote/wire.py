"""The gRPC connection to one engine server: one channel, and a stream of its own for every request.

A stream that has answered is left to end by itself: it is half-closed from the beginning, and cancelled only in
mid-stream. One that is cancelled in the moment of its last response keeps its model from ever unloading (Triton 2.51),
and two requests on one stream may end the server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from bls import kserve
from bls.arrays import strings
from bls.contract import ENGINE_CONTROL, ENGINE_CONTROL_CONTRACT
from engines.remote import messages
from engines.remote.settings import Header

MESSAGE_BYTES = 64 << 20
CONTROL_SECONDS = 3.0
END_SECONDS = 2.0
_KEY_PREFIX = "triton-grpc-protocol-"  # which Triton puts before a key's name in a call's metadata
_CHANNEL = [
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # gRPC's own waits 1 to 120 s before it looks for a server that went away again; a connect may take the second one.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A machine that vanished sends no FIN. gRPC gives the socket this timeout for what is not acknowledged
    # (TCP_USER_TIMEOUT), and as something is asked every second, that is soon noticed.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_http_proxy", 0),  # http_proxy of the environment is for the way out, not for engine servers
    # Two endpoints must not share a connection, nor one that was closed live on.
    ("grpc.use_local_subchannel_pool", 1),
]


class Wire:
    """Must be made within the event loop that uses it. `key`: the header that the server asks for, if any."""

    def __init__(self, target: str, key: Header | None = None) -> None:
        self._metadata = ((f"{_KEY_PREFIX}{key[0].lower()}", key[1]),) if key else ()
        self._channel = grpc.aio.insecure_channel(target, options=_CHANNEL)
        self._ending: set[asyncio.Task[None]] = set()
        # Each stream carries one request, so it can be spoken as a unary call: one message, then half-closed at once.
        self._stream = kserve.method(self._channel, "ModelStreamInfer", kserve.ModelStreamInferResponse, is_stream=True)
        self._infer = kserve.method(self._channel, "ModelInfer", kserve.ModelInferResponse)
        self._ready = kserve.method(self._channel, "ModelReady", kserve.ModelReadyResponse)

    def stream(self, message: Any, timeout_seconds: float | None) -> Any:
        """A call to be read with `read`, and then given to `end`."""
        return self._stream(messages.streamed(message), timeout=timeout_seconds, metadata=self._metadata)

    def end(self, rpc: Any, has_ended: bool) -> None:
        """`has_ended`: its last response has come."""
        if not has_ended:
            rpc.cancel()
        elif not rpc.done():  # Read to its end behind its reader's back: a call that is dropped is cancelled.
            task = asyncio.get_running_loop().create_task(_read_to_end(rpc))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def is_ready(self, model: str, timeout_seconds: float) -> bool:
        """Raises AioRpcError."""
        request = kserve.ModelReadyRequest(name=model)
        response = await self._ready(request, timeout=timeout_seconds, metadata=self._metadata)
        return bool(response.ready)

    async def control(self, engine: str, request_id: str, output: str) -> str:
        """What engine_control there gives as text. Raises AioRpcError."""
        tensors = {"engine": strings(engine), "request_id": strings(request_id)}
        message = messages.request(ENGINE_CONTROL, "", ENGINE_CONTROL_CONTRACT, tensors, [output])
        response = await self._infer(message, timeout=CONTROL_SECONDS, metadata=self._metadata)
        value = messages.tensors(response)[output].flat[0]
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    async def close(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending, timeout=END_SECONDS)
        await self._channel.close()


def said(error: Any) -> str:
    """An AioRpcError on one line."""
    return " ".join((error.details() or error.code().name).split())[:200]


async def _read_to_end(rpc: Any) -> None:
    with suppress(grpc.aio.AioRpcError):
        while await rpc.read() is not grpc.aio.EOF:
            pass
