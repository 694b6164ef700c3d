"""`TritonAsyncClient`: many requests at once over one connection, each of which ends exactly once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

import grpc
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from bls.request_parameters import REQUEST_PRIORITY
from scripts.client import tensors as client_tensors
from scripts.client.failure import RequestFailed, from_rpc
from scripts.client.request import STREAMED, TEXT_TENSORS, Answer, Piece, Request, joined, piece_of, unstreamed, values

DEADLINE_S = 600.0
# What gRPC has to say of a call that was left comes from another thread. Where the loop is closed by then, the next one
# that uses gRPC prints "Event loop is closed" and a traceback, and goes on. So it gets a moment, mostly enough.
LEAVE_S = 0.02
T = TypeVar("T")
CHANNEL = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # gRPC's own waits 1 to 120 s before it looks for a server that went away again, and fails all calls meanwhile.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


class TritonAsyncClient:
    """Asks the models of one server over one gRPC connection, from the event loop in which it is first used.

    It may be made anywhere. Once that loop is closed, another one may use it, over a new connection; while it is open,
    RuntimeError says that the client belongs to it.

    At most `max_in_flight` requests are sent at a time, the others wait here. A request that failed as UNAVAILABLE or
    BUSY before anything was received is sent again, up to `retries` times and within its deadline, after a random wait
    of up to `backoff_s`, twice that, and so on. If the connection broke the server may have begun the lost one: set
    `retries=0` where an answer must not be paid for twice.

    With `credentials`, as `grpc.ssl_channel_credentials(root_certificates)` makes them, it speaks TLS.
    """

    def __init__(
        self,
        url: str = "localhost:8001",
        *,
        max_in_flight: int = 256,
        retries: int = 3,
        backoff_s: float = 0.2,
        deadline_s: float = DEADLINE_S,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.url = url
        self._credentials = credentials
        self._loop: asyncio.AbstractEventLoop | None = None  # of what the next two hold
        self._connection: Any = None
        self._places = asyncio.Semaphore(max_in_flight)
        self._max_in_flight = max_in_flight
        self._retries = retries
        self._backoff_s = backoff_s
        self._deadline_s = deadline_s
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def __aenter__(self) -> TritonAsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends what is still running, each with a RequestFailed, and then the connection."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._connection is not None and self._loop is asyncio.get_running_loop():
            await self._connection.close()

    @property
    def _client(self) -> Any:
        """The connection, made in the loop that runs, which is the only one that it works in."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(f"the client of {self.url} belongs to another event loop, which is not closed yet")
            self._loop, self._tasks = loop, set()
            self._places = asyncio.Semaphore(self._max_in_flight)
            self._connection = triton_aio.InferenceServerClient(self.url, creds=self._credentials, channel_args=CHANNEL)
        return self._connection

    async def stream(self, request: Request | str) -> AsyncIterator[Piece]:
        """Yields the pieces of an answer as they come, the last with `is_last`. Raises RequestFailed.

        A model that does not stream gives one piece. Each answer is read as fast as it comes, however slowly it is
        taken from here: a stream that is left unread keeps its model from ever unloading (Triton 2.51).
        """
        request = Request(request) if isinstance(request, str) else request
        arrived: asyncio.Queue[Piece | None] = asyncio.Queue()
        async with self._running(self._read(request, arrived)) as reader:
            reader.add_done_callback(lambda _: arrived.put_nowait(None))
            while (piece := await arrived.get()) is not None:
                yield piece
            await _outcome(reader)

    async def generate(self, request: Request | str) -> Answer:
        """The whole answer. Raises RequestFailed."""
        request = Request(request) if isinstance(request, str) else request
        return joined([piece async for piece in self.stream(unstreamed(request))])

    async def generate_all(self, requests: Iterable[Request | str]) -> list[Answer | RequestFailed]:
        """All at once; in their order an answer each, or why there is none. One that fails leaves the others alone."""

        async def settled(request: Request | str) -> Answer | RequestFailed:
            try:
                return await self.generate(request)
            except RequestFailed as failure:
                return failure

        return list(await asyncio.gather(*map(settled, requests)))

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        priority: int = 0,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
    ) -> dict[str, Any]:
        """The output arrays of any model that is not decoupled. Raises RequestFailed."""
        tensors = client_tensors.inputs(model, inputs)

        async def once(remaining_s: float) -> AsyncIterator[dict[str, Any]]:
            yield client_tensors.outputs(await self._infer(model, tensors, priority, timeout_s, remaining_s))

        async def only() -> dict[str, Any]:
            (result,) = [result async for result in self._attempts(once, deadline_s or self._deadline_s)]
            return result

        async with self._running(only()) as running:
            return await _outcome(running)

    async def is_ready(self, model: str) -> bool:
        """Whether the server is there and has the model loaded. Says nothing of the models that this one calls."""
        try:
            return bool(await self._client.is_model_ready(model, client_timeout=10))
        except InferenceServerException:
            return False

    @asynccontextmanager
    async def _running(self, work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
        """A task that `close` can end, and that ends with the block in any case."""
        try:
            if self._is_closed:
                raise RequestFailed("CANCELLED", "the client was closed")
            _ = self._client  # of this loop, before anything waits in it
        except BaseException:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._tasks.add(task)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._tasks.discard(task)
            _ = task.cancelled() or task.exception()  # seen, or asyncio logs it as never retrieved

    async def _read(self, request: Request, arrived: asyncio.Queue[Piece | None]) -> None:
        tensors = client_tensors.inputs(request.model, values(request))
        ask = self._stream_once if request.model in STREAMED else self._generate_once

        def once(remaining_s: float) -> AsyncIterator[Piece]:
            return ask(request, tensors, remaining_s)

        async for piece in self._attempts(once, request.deadline_s or self._deadline_s):
            arrived.put_nowait(piece)

    async def _attempts(self, once: Callable[[float], AsyncIterator[T]], deadline_s: float) -> AsyncIterator[T]:
        """What `once(remaining seconds)` yields; asked again only while nothing was received, within the deadline."""
        end = time.monotonic() + deadline_s
        received = False
        async with self._place(end, deadline_s):
            for attempt in count(1):
                try:
                    async for item in once(end - time.monotonic()):
                        received = True
                        yield item
                    return
                except (grpc.RpcError, InferenceServerException, RequestFailed) as error:
                    failure = error if isinstance(error, RequestFailed) else from_rpc(error, deadline_s)
                failure.attempts = attempt
                wait_s = self._backoff_s * 2 ** (attempt - 1) * random.uniform(0.5, 1)
                if received or not failure.is_retryable or attempt > self._retries or time.monotonic() + wait_s > end:
                    raise failure
                await asyncio.sleep(wait_s)

    async def _stream_once(self, request: Request, tensors: Sequence[Any], remaining_s: float) -> AsyncIterator[Piece]:
        async def only() -> AsyncIterator[dict[str, Any]]:
            yield {
                "model_name": request.model,
                "inputs": tensors,
                "outputs": [triton.InferRequestedOutput(name) for name in STREAMED[request.model]],
                "priority": request.priority,
                # The scheduler keeps the other to itself, and the router has to know whom to turn away last.
                "parameters": {REQUEST_PRIORITY: request.priority} if request.priority else None,
                "timeout": _microseconds(request.timeout_s),
            }

        # A stream of its own for each request: it can be cancelled alone, and its error ends nothing else.
        # Without the header triton_grpc_error, which may crash Triton 2.51: the codes are read from the messages.
        call = self._client.stream_infer(only(), stream_timeout=remaining_s)
        has_ended = False
        failure: Exception | None = None
        try:
            async for result, error in call:
                if failure or error is not None:
                    # Read on to the stream's end: one that is left before it may keep the model from unloading (2.51).
                    failure, has_ended = failure or error, True
                    continue
                piece = piece_of(result)
                has_ended = piece.is_last
                yield piece
        except grpc.RpcError:
            if not has_ended:  # Nothing is missing if the connection breaks after the last response.
                raise
        finally:
            call.cancel()
            if not has_ended:
                await asyncio.sleep(LEAVE_S)
        if failure:
            raise failure
        if not has_ended:
            raise RequestFailed("DATA_LOSS", "the stream ended before its last response")

    async def _generate_once(
        self, request: Request, tensors: Sequence[Any], remaining_s: float
    ) -> AsyncIterator[Piece]:
        result = await self._infer(request.model, tensors, request.priority, request.timeout_s, remaining_s)
        text = result.as_numpy(TEXT_TENSORS[request.model][1])
        yield Piece(text.flat[0].decode(errors="replace"), is_last=True)

    async def _infer(
        self, model: str, tensors: Sequence[Any], priority: int, timeout_s: float | None, remaining_s: float
    ) -> Any:
        return await self._client.infer(
            model, tensors, priority=priority, timeout=_microseconds(timeout_s), client_timeout=remaining_s
        )

    @asynccontextmanager
    async def _place(self, end: float, deadline_s: float) -> AsyncIterator[None]:
        """One of `max_in_flight`, in the order in which they were asked for."""
        taking = asyncio.ensure_future(self._places.acquire())
        try:
            await asyncio.wait({taking}, timeout=max(0.0, end - time.monotonic()))
            if not taking.done():
                reason = f"not sent within {deadline_s:g} s: {self._max_in_flight} requests are in flight"
                raise RequestFailed("DEADLINE_EXCEEDED", reason)
            yield
        finally:
            if taking.done() and not taking.cancelled():
                self._places.release()
            taking.cancel()


async def _outcome(task: asyncio.Task[T]) -> T:
    """What it returned or raised. Only `close` cancels it while somebody waits."""
    await asyncio.wait({task})
    if task.cancelled():
        raise RequestFailed("CANCELLED", "the client was closed")
    return task.result()


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
