"""Whether a server is ready, over HTTP, beside the server: GET /ready for load balancers, GET /metrics for Prometheus.

/ready is 200 while every model is ready and 503 else, while the server loads or is about to stop too, with the state
of each model as JSON. /metrics has what tritonserver's own leave out: readiness, living processes, shared memory.
/health is 200 as long as this answers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.server import http_pages, readiness
from scripts.server.http_pages import METRICS_TYPE, Page

FRESH_S = 0.5  # However many ask, the models are asked no oftener than that.
SHARED_MEMORY = Path("/dev/shm")
STOPPING = "the server is about to stop"


@dataclass
class Care:
    """What the supervisor has done so far, and by model the processes that outlive their replacement."""

    restarts: int = 0
    changeovers: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    old: Counter[str] = field(default_factory=Counter)


class ReadinessServer:
    """`states` says of each model "ready" or why not; `processes` counts the living processes of each python model."""

    def __init__(
        self,
        states: Callable[[], Mapping[str, str]],
        processes: Callable[[], Mapping[str, int]],
        care: Care | None = None,
    ) -> None:
        self.is_stopping = False  # Set once the server drains: it is to get no new requests.
        self.front_drains: Callable[[], bool] = lambda: False  # whether the gateway in front of it was told to
        self._ask = states
        self._processes = processes
        self._care = care or Care()
        self._lock = threading.Lock()
        self._states: Mapping[str, str] = {}
        self._asked_at = float("-inf")

    def listening(self, host: str, port: int) -> AbstractContextManager[int]:
        """Answers while the block runs, which gets the port, chosen for 0."""
        return http_pages.listening(host, port, self._page)

    def _page(self, path: str) -> Page:
        if path == "/ready":
            states = self.states()
            return Page(200 if readiness.is_ready(states) else 503, "application/json", readiness.as_json(states))
        if path == "/metrics":
            return Page(200, METRICS_TYPE, self.metrics())
        if path == "/health":
            return Page(200, "text/plain", "")
        return Page(404, "text/plain", "try /ready, /health or /metrics\n")

    def states(self) -> Mapping[str, str]:
        with self._lock:
            if time.monotonic() - self._asked_at >= FRESH_S:
                states = self._ask()
                self._states = dict.fromkeys(states, STOPPING) if self.front_drains() else states
                self._asked_at = time.monotonic()
            return dict.fromkeys(self._states, STOPPING) if self.is_stopping else self._states

    def metrics(self) -> str:
        """In Prometheus' text format."""
        found = os.statvfs(SHARED_MEMORY)
        ready = {model: int(state == readiness.READY) for model, state in self.states().items()}
        care, living = self._care, self._processes()
        repairs = {**dict.fromkeys(living, 0), **care.repairs}  # A counter that begins above 0 shows nobody its rise.
        families = [
            ("llm_router_model_ready", "Whether a model is ready", _by_model(ready)),
            ("llm_router_model_processes", "Living processes of a Python model", _by_model(living)),
            ("llm_router_model_old_processes", "Processes that were replaced and don't end", _by_model(care.old)),
            ("llm_router_shared_memory_free_bytes", "Free in /dev/shm", {"": found.f_bavail * found.f_frsize}),
            ("llm_router_shared_memory_size_bytes", "Size of /dev/shm", {"": found.f_blocks * found.f_frsize}),
            ("llm_router_model_repairs_total", "Models loaded anew, a process was lost", _by_model(repairs)),
            ("llm_router_server_restarts_total", "Servers started since one died or hung", {"": care.restarts}),
            ("llm_router_server_changeovers_total", "Servers replaced while they served", {"": care.changeovers}),
        ]
        return "".join(
            f"# HELP {name} {help_text}\n# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
            + "".join(f"{name}{labels} {value}\n" for labels, value in values.items())
            for name, help_text, values in families
        )


def _by_model(values: Mapping[str, int]) -> dict[str, int]:
    """By Prometheus labels."""
    return {f'{{model="{model}"}}': value for model, value in sorted(values.items())}
