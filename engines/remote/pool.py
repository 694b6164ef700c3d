"""The endpoints of one tier: found by name or number, looked after, and chosen for each request."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import numpy as np

from bls.errors import NotLoaded
from engines.remote import figures, picker
from engines.remote.endpoint import Endpoint
from engines.remote.settings import Address, RemoteParameters
from engines.triton.identity import Identity

log = logging.getLogger(__name__)

BLOCK_TOKENS = 32  # of an engine that doesn't say how many tokens a block of its KV cache holds
Resolve = Callable[[str, int], Awaitable[Iterable[str]]]


async def resolved(host: str, port: int) -> list[str]:
    """The numbers that a name stands for; a number stands for itself. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Pool:
    """Must be made within the event loop that uses it; `run` keeps it up to date."""

    def __init__(self, model: str, own: Identity, settings: RemoteParameters, resolve: Resolve = resolved) -> None:
        self.endpoints: dict[Address, Endpoint] = {}
        self._gone: list[Endpoint] = []  # They have requests that still run.
        self._model = model
        self._own = own
        self._settings = settings
        self._resolve = resolve
        self._picks = itertools.count(1)
        self._known: dict[Address, set[Address]] = {}
        self._last_said = ""
        self._tally = figures.Tally()

    async def start(self, seconds: float) -> None:
        """Returns once each endpoint has been looked at, after so long at most."""
        await self._find()
        looks = [asyncio.create_task(each.was_checked.wait()) for each in self.endpoints.values()]
        if looks:
            _, late = await asyncio.wait(looks, timeout=seconds)
            for each in late:
                each.cancel()

    async def run(self) -> None:
        """Looks for addresses that have come or gone, until it is cancelled."""
        while True:
            await asyncio.sleep(self._settings.resolve_seconds)
            try:
                await self._find()
            except Exception:  # A bug of ours must not end it.
                log.exception("looking for the endpoints of %s", self._model)

    def all(self) -> list[Endpoint]:
        """Those that have left and still have requests too."""
        return [*self.endpoints.values(), *self._gone]

    def pick(self, ids: np.ndarray[Any, Any], tried: Collection[str] = ()) -> Endpoint | None:
        """The endpoint for a prompt of these ids; None where no further one may be asked."""
        usable = {each.name: each for each in self.endpoints.values() if each.name not in tried and not each.why_not}
        if not usable:
            return None
        block = max((each.figures.block_tokens for each in usable.values() if each.figures), default=0)
        key = picker.prefix_key(ids, block or BLOCK_TOKENS, self._settings.prefix_blocks)
        found = usable[picker.choose([each.candidate() for each in usable.values()], key).name]
        found.picked = next(self._picks)
        return found

    def nobody(self) -> NotLoaded:
        """Why none may be asked. An error that costs its tier's breaker nothing: the next request may find one."""
        reasons = [each.why_not or "it did not take the request" for each in self.endpoints.values()]
        said = "; ".join(dict.fromkeys(reasons)) or "no address of one is known"
        return NotLoaded(f"{self._model} is not ready on any engine server: {said}")

    def figures(self) -> dict[tuple[str, str], float]:
        """The tier's, under the names of engines/triton/metrics.py. Without any page: of this server's requests."""
        living = [each for each in self.endpoints.values() if not each.why_not]
        found = figures.total(each.figures.values for each in living if each.figures)
        if ("request", "active") not in found:
            active, waiting = (sum(getattr(each, what) for each in living) for what in ("in_flight", "without_token"))
            found |= {("request", "active"): active, ("request", "waiting"): waiting}
            found["request", "scheduled"] = active - waiting
        return found | self._tally.look({each.name: each.figures.values if each.figures else {} for each in self.all()})

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.all()))

    async def _find(self) -> None:
        wanted: set[Address] = set()
        for named in self._settings.endpoints:
            try:
                found = {Address(host, named.port) for host in await self._resolve(named.host, named.port)}
            except (OSError, UnicodeError) as error:
                self._say(f"{named.host} has no address: {getattr(error, 'strerror', None) or error}")
                found = set()
            if found:  # An answer without any address, or none, is more often the resolver's fault than the tier's end.
                self._known[named] = found
            wanted |= self._known.get(named, set())
        for address in wanted - self.endpoints.keys():
            self.endpoints[address] = self._back(address) or Endpoint(address, self._model, self._own, self._settings)
        for address in self.endpoints.keys() - wanted:
            self._gone.append(self.endpoints.pop(address))
            self._gone[-1].is_leaving = True
            log.info("%s of %s is no longer among the addresses", address, self._model)
        for each in [each for each in self._gone if not each.in_flight]:
            self._gone.remove(each)
            await each.close()

    def _back(self, address: Address) -> Endpoint | None:
        """The endpoint that had left and still has requests: it has both, and is one in the metrics."""
        for each in self._gone:
            if each.address == address:
                self._gone.remove(each)
                each.is_leaving = False
                log.info("%s of %s is among the addresses again", address, self._model)
                return each
        return None

    def _say(self, text: str) -> None:
        if text != self._last_said:
            log.warning("%s", text)
        self._last_said = text
