"""The end of a server that is asked to stop: it answers what it has, and is not waited for longer than that takes.

tritonserver needs a second for each process of a python model once all is answered, and never ends a model whose
stream was cancelled in the moment of its last response (2.51). So the end of the last request is looked for: in the
server's own metrics, and in its HTTP connections.
"""

from __future__ import annotations

import time

from scripts.server import idle_connections
from scripts.server.generation import Generation

UNLOAD_S = 15  # what tritonserver may take beyond the drain before it is killed
QUIET_LOOKS = 3  # so many in a row without anything in flight
QUIET_MS = 500
# In the last seconds, after which tritonserver cuts them all: connections that a busy client asks on again and again.
LATE_S, LATE_QUIET_MS = 8.0, 30
ROUTER = "llm_router"
# What is in flight, by the models themselves; they say so while tritonserver ends.
_AT_ROUTER = "llm_router_requests_in_flight"
_IN_FLIGHT = (_AT_ROUTER, "nv_inference_pending_request_count")
_ENGINES, _ENGINES_TYPES = "nv_trt_llm_request_metrics", ('"active"', '"scheduled"', '"waiting"')
_DONE = ("nv_inference_request_success", "nv_inference_request_failure")


class Quiet:
    """Whether nothing is in flight at a server; ask a few times a second. A server that has ended is quiet, too."""

    def __init__(self, generation: Generation) -> None:
        self.answering = 0.0  # requests at the router, when it was last looked
        self._generation = generation
        self._looks = 0
        self._done = ""

    @property
    def can_be_seen(self) -> bool:
        """Only where every request goes through the router, whose metrics tell how many there are."""
        return ROUTER in self._generation.settings.models and self._generation.settings.serves_metrics

    def look(self) -> bool:
        if self._generation.server.exit_status() is not None:
            self.answering = 0.0
            return True
        page = self._generation.metrics()
        self.answering = _sum(page, _AT_ROUTER)
        done = " ".join(line for line in page.splitlines() if line.startswith(_DONE))
        port = self._generation.settings.http_port
        busy = idle_connections.count_busy(self._generation.server.pid, port, QUIET_MS)
        waits = in_flight(page, self._generation.settings.has_engines)
        is_quiet = bool(page) and done == self._done and not busy and waits == 0
        self._done = done
        self._looks = self._looks + 1 if is_quiet else 0
        return self._looks >= QUIET_LOOKS


class Drain:
    """Asks the server of `generation` to stop; then `look` a few times a second until it says that it has ended.

    `drain_s`: what is left of the time that requests in flight have, if it isn't all of it.
    """

    def __init__(self, generation: Generation, drain_s: float | None = None) -> None:
        self.generation = generation
        self._quiet = Quiet(generation)
        self._has_answered_all = False
        left_s = generation.settings.drain_s if drain_s is None else drain_s
        self._end = time.monotonic() + left_s + UNLOAD_S
        self._late = time.monotonic() + generation.settings.drain_s - LATE_S
        generation.leave()
        generation.server.stop()

    def look(self) -> bool:
        """Whether it has ended; ends it where there is nothing to wait for any more."""
        server = self.generation.server
        if server.exit_status() is not None:
            return True
        self.generation.look()
        self.generation.close_idle_connections(LATE_QUIET_MS if time.monotonic() > self._late else None)
        if server.has_answered_all() or (self._quiet.can_be_seen and self._quiet.look()):
            self._has_answered_all = True
            server.kill()
        elif time.monotonic() > self._end:
            server.kill()
        return server.exit_status() is not None

    def cut_off(self) -> None:
        """Ends it now, whatever it does."""
        self.generation.server.kill()

    @property
    def has_ended_well(self) -> bool:
        """Whether, once it has ended, no request was cut off."""
        return self._has_answered_all or self.generation.server.has_ended_well()


def in_flight(metrics: str, has_engines: bool = True) -> float:
    """How many requests the page says are waiting or being answered; where the engines are elsewhere (not
    `has_engines`), their figures are of all their clients."""
    if not has_engines:
        return _sum(metrics, *_IN_FLIGHT)
    engines = [line for line in metrics.splitlines() if any(kind in line for kind in _ENGINES_TYPES)]
    return _sum(metrics, *_IN_FLIGHT) + _sum("\n".join(engines), _ENGINES)


def _sum(metrics: str, *beginnings: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(beginnings))
