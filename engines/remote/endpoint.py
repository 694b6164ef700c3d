"""One engine server of a tier: whether it may be asked, what it has to do, and the calls that wait for it.

Whether it lives is asked once a second over the connection that its streams use. Whatever comes over that is a sign of
life: a server that says nothing at all for SUSPECT_SECONDS gets nothing new, and who has no token of it asks another;
after `silent_seconds` all its streams end. One that closes its connection ends them by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc

from engines.remote import figures, picker, wire
from engines.remote.figures import Figures
from engines.remote.settings import Address, RemoteParameters
from engines.triton import identity
from engines.triton.identity import Identity

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0  # between two questions to one that is used
HURRY_SECONDS = 0.5  # the same of one that is away
LOOK_SECONDS = 0.1  # until one that is heard again is looked at
ANSWER_SECONDS = 3.0  # for an answer to a look, which is no verdict by itself
SUSPECT_SECONDS = 3.0
COMPARE_SECONDS = 10.0  # between two looks at which model it serves: it may have been loaded anew
FAILURES = 5  # So many requests in a row that it broke
EJECT_SECONDS = 5.0  # keep it out for so long
LOST, UNREACHABLE, BUSY, FAILED, MISMATCH = "lost", "unreachable", "busy", "failed", "mismatch"
ERRORS = (LOST, UNREACHABLE, BUSY, FAILED, MISMATCH)
_STARTING = "it was not asked yet"
AWAY = "it can't be reached"


class Call:
    """One request at this endpoint. `lost` says why it was given up."""

    def __init__(self, rpc: Any, request_id: str) -> None:
        self.rpc = rpc
        self.request_id = request_id
        self.has_response = False
        self.lost = ""
        self.ended = asyncio.Event()

    def give_up(self, why: str) -> None:
        if not self.lost:
            self.lost = why
            self.rpc.cancel()


class Endpoint:
    """Must be made within the event loop that uses it. `own` is the model that is expected there."""

    def __init__(
        self,
        address: Address,
        model: str,
        own: Identity,
        settings: RemoteParameters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.name = str(address)
        self.is_leaving = False  # no longer among the tier's addresses
        self.picked = 0
        self.errors: Counter[str] = Counter(dict.fromkeys(ERRORS, 0))
        self.figures: Figures | None = None
        self.was_checked = asyncio.Event()
        self._model = model
        self._own = own
        self._settings = settings
        self._clock = clock
        self._wire = wire.Wire(self.name, settings.key)
        self._away = self._why_not = _STARTING  # the first by what `_listen` hears, the second by all that is known
        self._heard_at = self._since = clock()
        self._ejected_until = self._compared_at = float("-inf")
        self._failures = 0
        self._calls: set[Call] = set()
        self._tasks = [asyncio.create_task(each) for each in (self._listen(), self._inspect(), self._watch())]

    @property
    def why_not(self) -> str:
        """Why it gets no new requests; "" where it does."""
        if self.is_leaving:
            return "it is no longer among the addresses"
        if self._why_not:
            return self._why_not
        if self.is_suspect:
            return "it gives no sign of life"
        return "it failed too often" if self._clock() < self._ejected_until else ""

    @property
    def is_suspect(self) -> bool:
        return self._clock() - self._heard_at >= SUSPECT_SECONDS

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    @property
    def without_token(self) -> int:
        return sum(not call.has_response for call in self._calls)

    def candidate(self) -> picker.Candidate:
        waiting = self.figures.waiting if self.figures else 0.0
        weight = picker.weight_at(self._clock() - self._since, self._settings.slow_start_seconds)
        return picker.Candidate(self.name, self.in_flight + waiting, weight, self.picked)

    def begin(self, message: Any, timeout_seconds: float | None) -> Call:
        """Sends a request."""
        call = Call(self._wire.stream(message, timeout_seconds), message.id)
        self._calls.add(call)
        return call

    def heard(self, call: Call) -> None:
        """A response came."""
        self._heard_at = self._clock()
        call.has_response = True

    def end(self, call: Call, has_ended: bool) -> None:
        """The request is over here; what of it goes on there is cancelled."""
        self._calls.discard(call)
        call.ended.set()
        self._wire.end(call.rpc, has_ended)

    def worked(self) -> None:
        self._failures = 0

    def failed(self, error: str, seconds: float = 0.0) -> None:
        """A request broke there. It is kept out for so long, and for longer after FAILURES in a row."""
        self.errors[error] += 1
        if error == FAILED:
            self._failures += 1
            seconds = EJECT_SECONDS if self._failures >= FAILURES else seconds
        self._ejected_until = max(self._ejected_until, self._clock() + seconds)

    def is_away(self, error: str, why: str) -> None:
        """The connection broke: it gets nothing more until it has been looked at."""
        self.errors[error] += 1
        self._lose(why)

    async def stop(self, call: Call) -> None:
        """Has the request end there with what it has. Raises AioRpcError."""
        await self._wire.control(self._model, call.request_id, "stopped")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for call in list(self._calls):
            call.give_up("the connection is closed")
        await self._wire.close()

    async def _listen(self) -> None:
        """Asks whether it lives, and whether its model is ready. Runs until it is cancelled."""
        while True:
            try:
                is_ready = await self._wire.is_ready(self._model, ANSWER_SECONDS)
                self._heard_at = self._clock()
                self._away = "" if is_ready else f"{self._model} is not ready there"
                if self._away:
                    self._leave(self._away)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or self._away == _STARTING:
                    self._lose(wire.said(error))
            await asyncio.sleep(HURRY_SECONDS if self._away else CHECK_SECONDS)

    async def _inspect(self) -> None:
        """Asks what else decides whether it is used; apart from `_listen`, which it must not hold up. Runs until it is
        cancelled."""
        while True:
            try:
                await self._look()
            except Exception:  # A bug of ours: the endpoint must not stay as it is for ever.
                log.exception("looking at %s", self.name)
                self._leave("looking at it failed")
            if self._away != _STARTING:
                self.was_checked.set()
            pause = HURRY_SECONDS if self._why_not else CHECK_SECONDS
            await asyncio.sleep(pause if self._is_heard() else LOOK_SECONDS)

    def _is_heard(self) -> bool:
        return not self._away

    async def _look(self) -> None:
        if not self._is_heard():
            return
        if self._settings.metrics_port:
            self.figures = await figures.read(self.address.host, self._settings.metrics_port, self._model)
        problem = "it is about to end" if self.figures and self.figures.is_draining else await self._mismatch()
        if problem and self._is_heard():
            self._leave(problem)
        elif self._why_not and self._is_heard():
            log.info("%s of %s is used from now on", self.name, self._model)
            self._why_not, self._since = "", self._clock()

    async def _mismatch(self) -> str:
        """How its model differs from this one; asked when it comes, and now and then."""
        is_due = self._clock() - self._compared_at >= COMPARE_SECONDS
        if not self._settings.compare_models or (not self._why_not and not is_due):
            return ""
        try:
            text = await self._wire.control(self._model, "", "identity")
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                # It will say so sooner or later; until then what it said last holds.
                return "its engine_control does not answer" if self._why_not else ""
            text = ""
        self._compared_at = self._clock()
        found = identity.difference(self._own, text)
        if not found:
            return ""
        problem = f"it serves another model than this server's {self._model}: {found}"
        if problem != self._why_not:
            self.errors[MISMATCH] += 1
        return problem

    def _lose(self, detail: str) -> None:
        self._away = AWAY
        self._leave(AWAY, detail)

    def _leave(self, why: str, detail: str = "") -> None:
        """`detail` is for the log alone: it may hold addresses."""
        if why != self._why_not:
            log.warning("%s of %s is not used: %s", self.name, self._model, f"{why}: {detail}" if detail else why)
        self._why_not = why

    async def _watch(self) -> None:
        """Ends the calls that wait for one that has fallen silent. Runs until it is cancelled."""
        while True:
            before = self._clock()
            await asyncio.sleep(HURRY_SECONDS)
            if self._clock() - before > 2 * HURRY_SECONDS:  # This process stood still itself.
                self._heard_at += self._clock() - before
            silent = self._clock() - self._heard_at
            if silent >= self._settings.silent_seconds:
                self._give_up(f"nothing was heard of it for {silent:.0f} s", list(self._calls))
            elif silent >= SUSPECT_SECONDS:
                waiting = [call for call in self._calls if not call.has_response]
                self._give_up("it gives no sign of life", waiting)

    def _give_up(self, why: str, calls: list[Call]) -> None:
        for call in calls:
            call.give_up(why)
