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
_IN_FLIGHT = ("llm_router_requests_in_flight", "nv_inference_pending_request_count")
_ENGINES, _ENGINES_TYPES = "nv_trt_llm_request_metrics", ('"active"', '"scheduled"', '"waiting"')
_DONE = ("nv_inference_request_success", "nv_inference_request_failure")


class Drain:
    """Asks the server of `generation` to stop; then `look` a few times a second until it says that it has ended."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self._quiet_looks = 0
        self._done = ""
        self._has_answered_all = False
        self._end = time.monotonic() + generation.settings.drain_s + UNLOAD_S
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
        if server.has_answered_all() or self._has_gone_quiet():
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

    def _has_gone_quiet(self) -> bool:
        """Only where every request goes through the router, whose metrics tell how many there are."""
        settings = self.generation.settings
        if ROUTER not in settings.models:
            return False
        page = self.generation.metrics()
        done = " ".join(line for line in page.splitlines() if line.startswith(_DONE))
        busy = idle_connections.count_busy(self.generation.server.pid, settings.http_port, QUIET_MS)
        is_quiet = bool(page) and done == self._done and not busy and in_flight(page) == 0
        self._done = done
        self._quiet_looks = self._quiet_looks + 1 if is_quiet else 0
        return self._quiet_looks >= QUIET_LOOKS


def in_flight(metrics: str) -> float:
    """How many requests the page says are waiting or being answered."""
    counted = 0.0
    for line in metrics.splitlines():
        is_engines = line.startswith(_ENGINES) and any(kind in line for kind in _ENGINES_TYPES)
        if is_engines or line.startswith(_IN_FLIGHT):
            counted += float(line.rpartition(" ")[2])
    return counted
