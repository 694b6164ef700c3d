"""The time between "stop" and the signal to tritonserver: what is in flight ends while every model is still there.

At its own stop tritonserver unloads its models side by side, so a request that still has to call one may find it gone
(triton-inference-server/server, issue 6287). So first the gateway turns new requests away and sends what runs to its
end; then Triton's own gRPC port takes no connections any more, so that a balancer sends the request to another server,
and the requests that came past the gateway end too. On a connection that is open already, and over HTTP, nothing can be
turned away, so that whoever asks there has to heed /ready.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from scripts.server.drain import Quiet
from scripts.server.generation import Generation


class Front(Protocol):
    """The gateway's process, or nothing in its place. `has_cut_off`: whether it ended before its answers did."""

    has_cut_off: bool

    def end(self) -> None:
        """Tells it to end once its answers have."""

    def drains(self) -> bool:
        """Whether it was told by another way to turn new requests away."""

    @property
    def has_ended(self) -> bool: ...


class NoFront:
    has_ended = True
    has_cut_off = False

    def drains(self) -> bool:
        return False

    def end(self) -> None:
        """There is nothing to end."""


class LameDuck:
    """Begins at once; then `look` a few times a second until it says that the servers may be told to stop.

    `lame_duck_s`: so long at least, for balancers to learn from /ready; `drain_s`: so long at most after that.
    """

    def __init__(self, servers: Sequence[Generation], front: Front, lame_duck_s: float, drain_s: float) -> None:
        self._generations = servers
        self._servers = self._seen()
        self._front = front
        self._earliest = time.monotonic() + lame_duck_s
        self._end = self._earliest + drain_s
        self._turns_away = False
        front.end()

    @property
    def left_s(self) -> float:
        """What is left of the time for requests in flight."""
        return max(0.0, self._end - time.monotonic())

    def look(self) -> bool:
        """Whether nothing is in flight any more, or the time is up."""
        quiet = [server.look() for server in self._servers]
        now = time.monotonic()
        is_late = now >= self._earliest and self._front.has_ended
        if is_late and not self._turns_away:  # before its end the gateway may need new connections itself
            self._turns_away = True
            for generation in self._generations:
                generation.turn_away()
            self._servers = self._seen()  # anew, since who came in at the last moment may not have been seen
            quiet = [server.look() for server in self._servers]
        return now >= self._end or (is_late and all(quiet))

    def _seen(self) -> list[Quiet]:
        """Where they can't be seen, tritonserver is to wait for them."""
        return [quiet for quiet in map(Quiet, self._generations) if quiet.can_be_seen]

    @property
    def status(self) -> str:
        """For a person: what is waited for."""
        if time.monotonic() < self._earliest:
            return "/ready says no, new requests are still answered"
        doing = sum(server.answering for server in self._servers)
        return f"requests in flight: {doing:g}" if doing else "requests in flight"
