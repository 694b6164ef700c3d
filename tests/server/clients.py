"""Small clients for the tests: /generate, /generate_stream as it arrives, gRPC streams, metrics, load and unload."""

from __future__ import annotations

import http.client
import json
import queue
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tritonclient.grpc as grpc

from bls.arrays import boolean, int32, strings
from scripts.bench.stream_load import tensor
from scripts.server import control_key


def generate(
    server: Any, model: str = "llm_router", patience_s: float = 120, **body: Any
) -> tuple[int, dict[str, Any]]:
    """Status and JSON of POST /generate, within `patience_s` seconds."""
    request = urllib.request.Request(f"{server.http_url}/v2/models/{model}/generate", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=patience_s) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def answer(server: Any, **body: Any) -> dict[str, Any]:
    """The JSON of an answer that must succeed."""
    status, reply = generate(server, **body)
    assert status == 200 and "error" not in reply, reply
    return reply


def refusal(server: Any, **body: Any) -> str:
    """The error of a request that must fail."""
    status, reply = generate(server, **body)
    assert status == 400, reply
    return str(reply["error"])


@contextmanager
def event_stream(server: Any, **body: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of POST /generate_stream as they come; leaving early closes the connection."""
    host, port = server.http_url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    connection.request("POST", "/v2/models/llm_router/generate_stream", json.dumps({"stream": True, **body}))
    response = connection.getresponse()

    def events() -> Iterator[dict[str, Any]]:
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    try:
        yield events()
    finally:
        response.close()
        connection.close()


def events_of(server: Any, **body: Any) -> list[dict[str, Any]]:
    with event_stream(server, **body) as events:
        return list(events)


def inputs_of(**values: Any) -> list[Any]:
    """gRPC inputs of shape [1,n] out of Python values."""
    arrays = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            arrays.append(tensor(name, value))
        elif isinstance(value, bool):
            arrays.append(tensor(name, boolean(value)))
        elif isinstance(value, int):
            arrays.append(tensor(name, np.array([[value]], np.uint64) if name == "seed" else int32(value)))
        elif isinstance(value, float):
            arrays.append(tensor(name, np.array([[value]], np.float32)))
        else:
            arrays.append(tensor(name, strings(*([value] if isinstance(value, str) else value))))
    return arrays


class GrpcStream:
    """One gRPC stream: `messages()` gives what arrived, InferResults or exceptions, up to FINAL or the first error."""

    def __init__(
        self,
        server: Any,
        model: str = "llm_router",
        options: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **values: Any,
    ) -> None:
        self._client = grpc.InferenceServerClient(server.grpc_url)
        self._arrived: queue.Queue[Any] = queue.Queue()
        self._client.start_stream(lambda result, error: self._arrived.put(error or result), headers=headers)
        self._client.async_stream_infer(model, inputs_of(**values), **(options or {}))

    def messages(self) -> Iterator[Any]:
        while True:
            message = self._arrived.get(timeout=120)
            yield message
            if isinstance(message, Exception) or is_final(message):
                return

    @property
    def arrived(self) -> int:
        """How many messages have come that `messages` has not given yet."""
        return self._arrived.qsize()

    def cancel(self) -> None:
        self._client.stop_stream(cancel_requests=True)

    def close(self) -> None:
        self._client.close()


@contextmanager
def grpc_stream(server: Any, *args: Any, **values: Any) -> Iterator[GrpcStream]:
    stream = GrpcStream(server, *args, **values)
    try:
        yield stream
    finally:
        stream.close()


def is_final(result: Any) -> bool:
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def text_of(result: Any) -> str:
    return str(result.as_numpy("text_output").flat[0].decode())


def metric(server: Any, name: str, **labels: str) -> float:
    """The sum over all series of that name that have these labels."""
    with urllib.request.urlopen(server.metrics_url) as response:
        lines = response.read().decode().splitlines()
    total = 0.0
    for line in lines:
        found = re.match(rf"{name}(?:{{(.*)}})? (\S+)$", line)
        if found:
            given = dict(re.findall(r'(\w+)="([^"]*)"', found[1] or ""))
            if labels.items() <= given.items():
                total += float(found[2])
    return total


def control(server: Any, model: str, action: str) -> None:
    """Loads or unloads a model and waits until that is done.

    An unloading model is "not ready" at once, but a load before its end is undone by that end (Triton 2.51).
    """
    post(server, f"models/{model}/{action}")
    wanted = ("READY", "") if action == "load" else ("UNAVAILABLE", "unloaded")

    def is_done() -> bool:
        states = {entry["name"]: (entry.get("state"), entry.get("reason", "")) for entry in post(server, "index")}
        return states[model] == wanted

    eventually(is_done)


def load_again_in_place(server: Any, model: str) -> None:
    """Loads a loaded model with another config: its new processes begin before its old ones end."""
    with urllib.request.urlopen(f"{server.http_url}/v2/models/{model}/config", timeout=30) as response:
        config = json.load(response)
    config["parameters"] = {"loaded": {"string_value": str(time.time())}}
    post(server, f"models/{model}/load", {"parameters": {"config": json.dumps(config)}})
    eventually(lambda: is_ready(server, model))


def post(server: Any, path: str, body: dict[str, Any] | None = None) -> Any:
    text = json.dumps(body or {}).encode()
    key = control_key.read(server.control_key_file).headers if server.control_key_file else {}
    request = urllib.request.Request(f"{server.http_url}/v2/repository/{path}", text, key)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read() or b"null")


def is_ready(server: Any, model: str) -> bool:
    try:
        urllib.request.urlopen(f"{server.http_url}/v2/models/{model}/ready", timeout=30).read()
        return True
    except urllib.error.HTTPError:
        return False


def idle(server: Any) -> None:
    """Waits until all that was asked is counted: a request is, right after its end, and is in flight until then."""
    eventually(lambda: metric(server, "llm_router_requests_in_flight") == 0)


def eventually(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Waits until the condition holds; fails the test if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
