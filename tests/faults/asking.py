"""One request to a running server as a client of its own would send it, and what became of it.

A gRPC request is a stream RPC of its own, ended by half-close and read to the RPC's end: Triton 2.51 may abort when a
stream is used again, and never unloads a model whose stream was cancelled at its last response. Only a client that has
given up cancels. Nothing here is a test.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc

ANSWERED, BUSY, LOST, HUNG = "answered", "busy", "lost", "hung"
PATIENCE_SECONDS = 40.0  # Without news for so long, a client gives up: the request hung.
WHOLE = ("length", "stop", "refused", "filtered")  # The finish reasons of an answer that lacks nothing.
_HONEST = re.compile(r"\[BUSY\].*retry after")
# A server that comes back is found at once: a channel's own pauses grow to two minutes.
_CHANNEL = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100))
_CHANNEL_OPTIONS = (*_CHANNEL, ("grpc.max_reconnect_backoff_ms", 500))


@dataclass(frozen=True)
class Ask:
    """A request: `kind` is its name in the report, `door` one of DOORS, `values` the router's inputs by name."""

    kind: str
    door: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a client saw. Seconds are time.monotonic; `longest_silence_s` is between any two pieces of news."""

    ask: Ask
    began_s: float
    result: str = LOST
    detail: str = ""
    first_s: float | None = None  # From its begin to the first piece.
    seconds: float = 0.0
    longest_silence_s: float = 0.0
    pieces: int = 0

    @property
    def is_lost(self) -> bool:
        return self.result in (LOST, HUNG)


class _Failed(Exception):
    pass


class _GaveUp(Exception):
    """No news for as long as the client waits."""


Pieces = Iterator[tuple[str, str]]  # text and finish_reason of each response


class Doors:
    """The ways to a server's `model`. One gRPC channel is kept over all requests, as a client would."""

    def __init__(self, server: Any, model: str = "llm_router", patience_s: float = PATIENCE_SECONDS) -> None:
        self._host = server.http_url.removeprefix("http://")
        self._model = model
        self._patience_s = patience_s
        self._channel = grpc.insecure_channel(server.grpc_url, options=_CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._ways: dict[str, Callable[[Ask], Pieces]] = {
            "grpc": self._grpc,
            "generate": self._generate,
            "generate_stream": self._generate_stream,
        }

    def close(self) -> None:
        self._channel.close()

    def ask(self, ask: Ask) -> Outcome:
        """Never raises for what the server does: the outcome says it."""
        began = news = time.monotonic()
        outcome, finish, characters = Outcome(ask, began), "", 0
        result, detail = ANSWERED, ""
        try:
            for text, reason in self._ways[ask.door](ask):
                now = time.monotonic()
                first_s = now - began if outcome.first_s is None else outcome.first_s
                outcome = replace(outcome, first_s=first_s, pieces=outcome.pieces + 1)
                outcome = replace(outcome, longest_silence_s=max(outcome.longest_silence_s, now - news))
                news, finish, characters = now, reason or finish, characters + len(text)
            if finish not in WHOLE or not characters:
                result, detail = LOST, f"it ended with {finish or 'no finish_reason'} and {characters} characters"
        except _GaveUp:
            result, detail = HUNG, f"no news in {self._patience_s:g} s"
        except _Failed as failure:
            detail = str(failure)
            result = BUSY if _HONEST.search(detail) and not outcome.pieces else LOST
        now = time.monotonic()
        silence = max(outcome.longest_silence_s, now - news)
        return replace(outcome, result=result, detail=detail, seconds=now - began, longest_silence_s=silence)

    def _grpc(self, ask: Ask) -> Pieces:
        call = self._stub.ModelStreamInfer(iter([_message(self._model, ask)]), timeout=15 * self._patience_s)
        try:
            for response in _with_patience(call, self._patience_s):
                if response.error_message:
                    raise _Failed(response.error_message)
                result = InferResult(response.infer_response)
                yield _text(result, "text_output"), _text(result, "finish_reason")
        except grpc.RpcError as error:
            raise _Failed(f"{error.code().name}: {error.details()}") from None

    def _generate(self, ask: Ask) -> Pieces:
        with _Post(self._host, self._model, "generate", ask, self._patience_s) as response:
            yield _event(response.read())

    def _generate_stream(self, ask: Ask) -> Pieces:
        with _Post(self._host, self._model, "generate_stream", ask, self._patience_s) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield _event(line[6:])


class _Post:
    """POST on a connection of its own; what goes wrong within the block is _Failed or _GaveUp."""

    def __init__(self, host: str, model: str, verb: str, ask: Ask, patience_s: float) -> None:
        self._connection = http.client.HTTPConnection(host, timeout=patience_s)
        self._path, self._body = f"/v2/models/{model}/{verb}", json.dumps(dict(ask.values))

    def __enter__(self) -> http.client.HTTPResponse:
        try:
            self._connection.request("POST", self._path, self._body)
            response = self._connection.getresponse()
            if response.status != 200:
                raise _Failed(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
        except BaseException as error:
            self.__exit__(None, error, None)
            raise
        return response

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._connection.close()
        if isinstance(error, TimeoutError):
            raise _GaveUp from None
        if isinstance(error, OSError | http.client.HTTPException):
            raise _Failed(f"{type(error).__name__}: {error}") from None


def _event(text: bytes) -> tuple[str, str]:
    try:
        event = json.loads(text)
    except ValueError:
        raise _Failed(f"no JSON: {text[:100]!r}") from None
    if "error" in event:
        raise _Failed(str(event["error"]))
    return str(event.get("text_output", "")), str(event.get("finish_reason", ""))


def _with_patience(call: Any, patience_s: float) -> Iterator[Any]:
    """What the RPC brings; _GaveUp, and the RPC cancelled, when it brings nothing for so long."""
    watched = _Silence(call, patience_s)
    try:
        for response in call:
            watched.put_off()
            yield response
    except grpc.RpcError:
        if watched.has_ended_it:
            raise _GaveUp from None
        raise
    finally:
        watched.end()


class _Silence:
    """Cancels an RPC that has brought nothing for so long: its iterator has no timeout."""

    def __init__(self, call: Any, patience_s: float) -> None:
        self.has_ended_it = False
        self._call = call
        self._patience_s = patience_s
        self._until = time.monotonic() + patience_s
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def put_off(self) -> None:
        self._until = time.monotonic() + self._patience_s

    def end(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(max(0.0, self._until - time.monotonic())):
            if time.monotonic() >= self._until:
                self.has_ended_it = True
                self._call.cancel()
                return


def _text(result: Any, name: str) -> str:
    array = result.as_numpy(name)
    return array.flat[0].decode(errors="replace") if array is not None and array.size else ""


def _message(model: str, ask: Ask) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, value in ask.values.items():
        tensor = message.inputs.add(name=name, shape=[1, 1])
        if isinstance(value, bool):
            tensor.datatype = "BOOL"
            tensor.contents.bool_contents.append(value)
        elif isinstance(value, int):
            tensor.datatype = "INT32"
            tensor.contents.int_contents.append(value)
        elif isinstance(value, float):
            tensor.datatype = "FP32"
            tensor.contents.fp32_contents.append(value)
        else:
            tensor.datatype = "BYTES"
            tensor.contents.bytes_contents.append(str(value).encode())
    for name in ("text_output", "finish_reason"):
        message.outputs.add(name=name)
    return message
