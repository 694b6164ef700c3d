"""Streams through a balancer, by OpenAI's API and by Triton's gRPC, and what became of each."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import grpc

from bls import kserve
from gateway import ask as router
from tests.balancers.pods import SECRET
from tests.server.echo_repository import ENDLESS

Result = TypeVar("Result")
PATIENCE_S = 120.0
PAUSE_S = 0.2  # of a client whose request failed, before its next
# A pod that comes back is found at once: a channel's own pauses grow to two minutes.
_CHANNEL = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]
PROMPT = "one two three four five"
BODY = {"model": "auto", "prompt": PROMPT, "stream": True, "max_tokens": 50}


@dataclass(frozen=True)
class Outcome:
    """`finish` is the finish_reason, "" if none came; `error` what the client was told, "" for nothing."""

    finish: str = ""
    error: str = ""
    status: int = 0
    pieces: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.finish) and not self.error


def lasting(pieces: int, step_ms: int) -> dict[str, Any]:
    """A body whose answer has so many pieces, so far apart."""
    return {**BODY, "max_tokens": pieces, "seed": ENDLESS * 1000 + step_ms}


class Stream:
    """One request to OpenAI's API on a connection of its own; `begin` returns once the first piece is there."""

    def __init__(self, port: int, body: Any, host: str = "127.0.0.1") -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        self._body = body
        self._response: http.client.HTTPResponse | None = None
        self._events: list[Any] = []
        self._error = ""
        self._buffer = b""

    def send(self) -> None:
        """Asks, and waits for nothing."""
        headers = {"content-type": "application/json", "x-api-key": SECRET}
        self._connection.request("POST", "/v1/completions", json.dumps(self._body), headers)

    def begin(self) -> Stream:
        try:
            self.send()
            self._response = self._connection.getresponse()
            if self._response.status == 200:
                self._next()
            else:
                self._error = f"HTTP {self._response.status}: {self._response.read().decode()[:200]}"
        except (OSError, http.client.HTTPException) as error:
            self._error = f"{type(error).__name__}: {error}"
        return self

    def finish(self) -> Outcome:
        """Reads it to its end."""
        try:
            while not self._error and self._next():
                pass
        except (OSError, http.client.HTTPException) as error:
            self._error = f"{type(error).__name__}: {error}"
        finally:
            self.leave()
        chunks = [event for event in self._events if event != "[DONE]"]
        told = next((str(chunk["error"]) for chunk in chunks if "error" in chunk), "")
        reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices", ())]
        finish = next((reason for reason in reasons if reason), "")
        if not (self._error or told) and (self._body["stream"] and self._events[-1:] != ["[DONE]"]):
            told = "it ended without [DONE]"
        return Outcome(finish, self._error or told, self._response.status if self._response else 0, len(reasons))

    def leave(self) -> None:
        """Closes the connection; whoever waits for an answer there waits no longer."""
        if self._connection.sock:
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        if self._response:
            self._response.close()
        self._connection.close()

    def _next(self) -> bool:
        """Reads up to the next event, or the whole answer; False at the end."""
        assert self._response
        if not self._body["stream"]:
            text = self._response.read()
            if text:
                self._events.append(json.loads(text))
            return False
        while b"\n\n" not in self._buffer:
            part = self._response.read1(65536)  # raises IncompleteRead where the pod died, other than readline
            if not part:
                return False
            self._buffer += part
        event, _, self._buffer = self._buffer.partition(b"\n\n")
        if event.startswith(b"data: "):
            data = event[6:]
            self._events.append("[DONE]" if data == b"[DONE]" else json.loads(data))
        return True


def ask(port: int, body: Any = BODY, host: str = "127.0.0.1") -> Outcome:
    """The outcome of one request, waited for."""
    return Stream(port, body, host).begin().finish()


class Grpc:
    """Triton's own API through a balancer, one channel for all, as a client keeps it."""

    def __init__(self, grpc_url: str) -> None:
        self._channel = grpc.insecure_channel(grpc_url, options=_CHANNEL)
        self._stream = self._channel.unary_stream(
            f"/{kserve.SERVICE}/ModelStreamInfer",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kserve.ModelStreamInferResponse.FromString,
        )

    def begin(self, pieces: int, step_ms: int, stream: bool = True) -> Any:
        """The RPC of an answer, to be read or cancelled."""
        wish = router.Ask(PROMPT, False, pieces, stream, {"seed": ENDLESS * 1000 + step_ms})
        return self._stream(router.request_of(wish, uuid.uuid4().hex, "", 300), timeout=3 * PATIENCE_S)

    def ask(self, pieces: int = 5, step_ms: int = 0, stream: bool = True) -> Outcome:
        """The outcome of one answer, waited for."""
        return self.outcome(self.begin(pieces, step_ms, stream))

    def outcome(self, call: Any) -> Outcome:
        """What becomes of an RPC."""
        finish, count = "", 0
        try:
            for response in call:
                if response.error_message:
                    return Outcome(finish, response.error_message, pieces=count)
                finish, count = router.piece_of(response.infer_response).finish or finish, count + 1
        except grpc.RpcError as error:
            return Outcome(finish, f"{error.code().name}: {error.details()}", pieces=count)
        return Outcome(finish, pieces=count)

    def close(self) -> None:
        self._channel.close()


class Load:
    """So many clients, each of which asks again when it has its answer; returns from `with` once each has had one."""

    def __init__(self, asks: Sequence[Callable[[], Outcome]]) -> None:
        self.outcomes: list[Outcome] = []
        self._is_over = threading.Event()
        self._begun = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._keep_asking, args=(each,), daemon=True) for each in asks]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self._begun.acquire(timeout=PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)

    def _keep_asking(self, ask_once: Callable[[], Outcome]) -> None:
        for number in itertools.count():
            self.outcomes.append(ask_once())
            if number == 0:
                self._begun.release()
            if self._is_over.wait(0 if self.outcomes[-1].is_whole else PAUSE_S):
                return

    @property
    def failures(self) -> Counter[str]:
        """What clients were told whose answer is not whole."""
        return Counter(
            each.error or f"finish {each.finish!r}, status {each.status}" for each in self.outcomes if not each.is_whole
        )


def at_once(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each of them returns, side by side, in their order."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [task.result() for task in [pool.submit(task) for task in tasks]]
