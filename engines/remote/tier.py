"""A tier on other machines as a process of Triton has it: an event loop in a thread of its own, for others to ask."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from bls.errors import BadRequest, Cancelled, EngineUnavailable
from bls.ports import Sender
from engines.remote.exchange import Exchange
from engines.remote.outlet import Outlet, Stream
from engines.remote.pool import Pool
from engines.remote.settings import RemoteParameters
from engines.triton.identity import Identity
from engines.triton.tensors import Arrays

log = logging.getLogger(__name__)

START_SECONDS = 3.0  # for the first look at all endpoints; one that is away then is found later
CLOSE_SECONDS = 5.0
MakePool = Callable[[str, Identity, RemoteParameters], Pool]


class Tier:
    """`own` is the model that its servers must have. Returns once each endpoint has been looked at."""

    def __init__(self, model: str, own: Identity, settings: RemoteParameters, make_pool: MakePool = Pool) -> None:
        self._model = model
        self._outlet = Outlet()
        self._ids: dict[str, Exchange] = {}  # By the request id that a client gave.
        self._lock = threading.Lock()  # Guards the ids, between Triton's thread and the loop's.
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoints", daemon=True)
        self._thread.start()
        self._pool: Pool = self._wait_for(self._make(lambda: make_pool(model, own, settings)), 2 * START_SECONDS)

    def submit(
        self,
        request_id: str,
        tensors: Arrays,
        outputs: frozenset[str],
        sender: Sender,
        errors_as_data: bool,
        timeout_seconds: float | None,
    ) -> None:
        """Begins a request. Raises BadRequest if its id is running already, EngineUnavailable once closed."""
        with self._lock:
            if self._is_closed:
                raise EngineUnavailable("the model is being unloaded")
            if request_id and request_id in self._ids:
                raise BadRequest(f"a request with the id {request_id!r} is running already")
            stream = Stream(self._outlet, sender, outputs, errors_as_data, lambda: self._later(self._left, exchange))
            exchange = Exchange(self._pool, self._model, tensors, outputs, stream, timeout_seconds)
            if request_id:
                self._ids[request_id] = exchange
        self._outlet.open(stream)
        self._later(self._begin, request_id, exchange)

    def stop(self, request_id: str) -> None:
        """Ends the running request of that id with what it has; one that is unknown or has ended is fine."""
        with self._lock:
            exchange = self._ids.get(request_id)
        if exchange is not None:
            self._later(exchange.stop)

    def look(self, take: Callable[[Pool], Any]) -> Any:
        """What `take` finds in the loop's own thread."""

        async def taken() -> Any:
            return take(self._pool)

        return self._wait_for(taken(), CLOSE_SECONDS)

    def close(self) -> None:
        """Ends all streams and both threads."""
        with self._lock:
            self._is_closed = True
        self._wait_for(self._end(), 2 * CLOSE_SECONDS)
        self._outlet.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _make(self, make: Callable[[], Pool]) -> Pool:
        pool = make()
        await pool.start(START_SECONDS)
        self._keep(pool.run())
        return pool

    def _begin(self, request_id: str, exchange: Exchange) -> None:
        self._keep(self._run(request_id, exchange))

    async def _run(self, request_id: str, exchange: Exchange) -> None:
        try:
            await exchange.run()
        finally:
            with self._lock:
                self._ids.pop(request_id, None)

    def _left(self, exchange: Exchange) -> None:
        exchange.give_up(Cancelled("the client left"))

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        await self._pool.close()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _later(self, act: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(act, *arguments)

    def _wait_for(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)
