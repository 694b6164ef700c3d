"""Streams from a Triton server, many at once from one asyncio loop, with the time of each response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio


@dataclass
class Stream:
    """One stream: seconds on one clock, and how many tokens each response brought."""

    started: float
    arrivals: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def first_token_seconds(self) -> float:
        return self.arrivals[0] - self.started

    @property
    def gaps_seconds(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


@dataclass(frozen=True)
class StreamRequest:
    """What is sent: `count_tokens` reads the number of new tokens from a response."""

    model: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    count_tokens: Callable[[Any], int]


def run_streams(url: str, requests: Sequence[StreamRequest]) -> list[Stream]:
    """Sends all requests at once and reads each stream to its end. Raises on the first error of any."""
    return asyncio.run(_run_all(url, requests))


async def _run_all(url: str, requests: Sequence[StreamRequest]) -> list[Stream]:
    async with grpc_aio.InferenceServerClient(url) as client:
        await client.is_server_live()  # Opens the connection before the clock starts.
        return list(await asyncio.gather(*(run_one(client, request) for request in requests)))


async def run_one(client: Any, request: StreamRequest) -> Stream:
    """One stream by an asynchronous client of tritonclient, read to its end. Raises RuntimeError for an error in it."""

    async def once() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": request.model, "inputs": request.inputs, "outputs": request.outputs}

    stream = Stream(time.perf_counter())
    async for result, error in client.stream_infer(once()):
        if error is not None:
            raise RuntimeError(str(error))
        tokens = request.count_tokens(result)
        if tokens:  # The end may come alone, without a token.
            stream.arrivals.append(time.perf_counter())
            stream.tokens.append(tokens)
    # Read to its end, not to the final response: a stream left there keeps its model from unloading (Triton 2.51).
    return stream


def tensor(name: str, array: np.ndarray[Any, Any]) -> Any:
    """An input for a request, its datatype taken from the array."""
    kind = {"i4": "INT32", "b1": "BOOL", "f4": "FP32", "u8": "UINT64", "O": "BYTES"}[array.dtype.str.lstrip("<|")]
    given = grpc.InferInput(name, list(array.shape), kind)
    given.set_data_from_numpy(array)
    return given


def output(name: str) -> Any:
    return grpc.InferRequestedOutput(name)
