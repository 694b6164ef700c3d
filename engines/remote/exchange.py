"""One request on its way: sent to an endpoint, to another one while nothing has come of it, and ended once.

What a server says of a request itself goes to the client as it is. What ends a connection is never taken for an end of
the answer, whatever its code: a stream that lacks its last response is one whose server was lost.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import grpc

from bls import errors
from bls.contract import ENGINE
from engines.remote import endpoint as endpoints
from engines.remote import messages, wire
from engines.remote.endpoint import Call, Endpoint
from engines.remote.pool import Pool
from engines.triton.tensors import Arrays

log = logging.getLogger(__name__)

MOST_TRIES = 3  # endpoints that one request is sent to
# So often a server is told to stop a request, within so long, before its stream ends without.
STOPS, STOP_SECONDS = 3, 1.0
_LOOK_SECONDS = 0.02
_AWAY_SECONDS = 1.0  # that an engine which says it is unavailable is left alone


class Answers(Protocol):
    """The way back to the client; none of it waits."""

    def send(self, tensors: Arrays) -> None: ...

    def finish(self, tensors: Arrays) -> None: ...

    def fail(self, error: errors.RouterError) -> None: ...


class _Elsewhere(Exception):
    """This endpoint did not take the request, and another one may; `error` is the client's where none does."""

    def __init__(self, error: errors.RouterError) -> None:
        super().__init__(str(error))
        self.error = error


class Exchange:
    """`run` once. `timeout_seconds`: after which it ends as TimedOut, None for never."""

    def __init__(
        self,
        pool: Pool,
        model: str,
        tensors: Arrays,
        outputs: frozenset[str],
        answers: Answers,
        timeout_seconds: float | None = None,
    ) -> None:
        self._pool = pool
        self._model = model
        self._tensors = tensors
        self._has_length = "sequence_length" in outputs
        # An engine that isn't this repository's may pad its ids, so their number is asked for in any case.
        self._outputs = outputs | {"sequence_length"} if "output_ids" in outputs else outputs
        self._answers = answers
        self._timeout_seconds = timeout_seconds
        self._endpoint: Endpoint | None = None
        self._call: Call | None = None
        self._has_ended = False
        self._has_response = False
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Returns once the client has its end."""
        try:
            await self._run()
        except errors.RouterError as error:
            failure = error
            self._end(lambda: self._answers.fail(failure))
        except asyncio.CancelledError:
            self._end(lambda: self._answers.fail(errors.EngineUnavailable("the model is being unloaded")))
            raise
        except Exception as error:  # A bug of ours must not leave the caller waiting.
            log.exception("a request to %s", self._model)
            bug = errors.EngineFailed(type(error).__name__)
            self._end(lambda: self._answers.fail(bug))

    def stop(self) -> None:
        """Ends it with what it has. Its stream ends soon, whether the server answers or not."""
        if self._stopping is None and not self._has_ended:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())

    def give_up(self, error: errors.RouterError) -> None:
        """Ends it at once, and there too."""
        if not self._has_ended:
            self._end(lambda: self._answers.fail(error))
            if self._stopping is None:
                self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _run(self) -> None:
        tried: list[str] = []
        busy: errors.RouterError | None = None
        while not self._has_ended and self._stopping is None:
            found = self._pool.pick(self._tensors["input_ids"], tried) if len(tried) < MOST_TRIES else None
            if found is None:
                raise busy or self._pool.nobody()
            tried.append(found.name)
            try:
                await self._ask(found)
                return
            except _Elsewhere as elsewhere:
                log.info("%s did not take a request to %s: %s", found.name, self._model, elsewhere.error)
                busy = elsewhere.error if isinstance(elsewhere.error, errors.Busy) else busy

    async def _ask(self, found: Endpoint) -> None:
        """Raises _Elsewhere while the client has nothing yet, else RouterError."""
        message = messages.request(self._model, uuid.uuid4().hex, ENGINE, self._tensors, self._outputs)
        self._endpoint = found
        call = self._call = found.begin(message, self._timeout_seconds)
        is_over = False
        try:
            is_whole = await self._read(found, call)
            is_over = True
        except grpc.aio.AioRpcError as error:
            is_over = True
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._timeout_seconds is not None:
                raise errors.TimedOut("the request's timeout has passed") from None
            self._lose(found, endpoints.LOST if self._has_response else endpoints.UNREACHABLE, wire.said(error))
        except asyncio.CancelledError:
            if self._has_ended or self._stopping is not None:
                return
            if not call.lost:
                raise
            found.errors[endpoints.LOST] += 1
            self._fail_over(f"{found.name}: {call.lost}")
        except errors.RouterError as error:
            is_over = True
            self._refused(found, error)
        else:
            if not is_whole:
                self._lose(found, endpoints.LOST, "it ended the stream before its last response")
        finally:
            self._call = None
            found.end(call, is_over)

    async def _read(self, found: Endpoint, call: Call) -> bool:
        """Hands on what comes. Whether the last response was among it. Raises RouterError for what the server says."""
        while (message := await call.rpc.read()) is not grpc.aio.EOF:
            if message.error_message:
                raise errors.from_message(message.error_message)
            found.heard(call)
            is_last = messages.is_final(message.infer_response)
            self._hand_on(message.infer_response, is_last)
            if is_last:
                found.worked()
                return True
        return False

    def _hand_on(self, response: Any, is_last: bool) -> None:
        if self._has_ended:
            return
        self._has_response = True
        tensors = messages.tensors(response)
        if not self._has_length and "sequence_length" in tensors:
            tensors["output_ids"] = tensors["output_ids"][..., : tensors.pop("sequence_length").item()]
        if is_last:
            self._end(lambda: self._answers.finish(tensors))
        elif tensors:
            self._answers.send(tensors)

    def _lose(self, found: Endpoint, error: str, why: str) -> None:
        """The connection broke."""
        found.is_away(error, why)
        self._fail_over(f"{found.name}: {why}")

    def _fail_over(self, why: str) -> None:
        if self._has_ended or self._stopping is not None:
            return
        if self._has_response:
            log.error("a stream of %s has lost its engine server: %s", self._model, why)
            raise errors.EngineFailed("the engine server was lost in mid-stream; the server's log says why")
        raise _Elsewhere(errors.EngineUnavailable(why))

    def _refused(self, found: Endpoint, error: errors.RouterError) -> None:
        """The server said so of this request."""
        if isinstance(error, errors.Busy):
            found.failed(endpoints.BUSY)
        elif isinstance(error, errors.EngineUnavailable):
            found.failed(endpoints.FAILED, _AWAY_SECONDS)
        elif isinstance(error, errors.EngineFailed):
            found.failed(endpoints.FAILED)
        is_elsewhere = isinstance(error, errors.Busy | errors.EngineUnavailable)
        if is_elsewhere and not self._has_response and not self._has_ended:
            raise _Elsewhere(error)
        raise error

    async def _stop(self) -> None:
        call, found = self._call, self._endpoint
        if call is not None and found is not None:
            for _ in range(STOPS):  # Again, as a stop may come before the request that it is for.
                with suppress(grpc.aio.AioRpcError, asyncio.TimeoutError):
                    await asyncio.wait_for(found.stop(call), STOP_SECONDS)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(call.ended.wait(), STOP_SECONDS)
                    break
            else:
                call.give_up("it does not end a request that was stopped")
        self._end(lambda: self._answers.finish({}))  # Unless its end has come.

    def _end(self, act: Callable[[], None]) -> None:
        if not self._has_ended:
            self._has_ended = True
            act()
