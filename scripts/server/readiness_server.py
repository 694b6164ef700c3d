"""Whether a server is ready, over HTTP, beside the server: GET /ready for load balancers, GET /metrics for Prometheus.

/ready is 200 while every model is ready and 503 else, while the server loads or is about to stop too, with the state
of each model as JSON. /metrics has what tritonserver's own leave out: readiness, living processes, shared memory.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scripts.server import readiness

FRESH_S = 0.5  # However many ask, the models are asked no oftener than that.
SHARED_MEMORY = Path("/dev/shm")
STOPPING = "the server is about to stop"


class ReadinessServer:
    """`states` says of each model "ready" or why not; `processes` counts the living processes of each python model."""

    def __init__(self, states: Callable[[], Mapping[str, str]], processes: Callable[[], Mapping[str, int]]) -> None:
        self.is_stopping = False  # Set once the server drains: it is to get no new requests.
        self._ask = states
        self._processes = processes
        self._lock = threading.Lock()
        self._states: Mapping[str, str] = {}
        self._asked_at = float("-inf")

    @contextmanager
    def listening(self, host: str, port: int) -> Iterator[int]:
        """Answers while the block runs. Yields the port, which is chosen for 0."""

        with _HttpServer(host, port, self) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="readiness", daemon=True)
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
                thread.join()

    def states(self) -> Mapping[str, str]:
        with self._lock:
            if time.monotonic() - self._asked_at >= FRESH_S:
                self._states = self._ask()
                self._asked_at = time.monotonic()
            return dict.fromkeys(self._states, STOPPING) if self.is_stopping else self._states

    def metrics(self) -> str:
        """In Prometheus' text format."""
        found = os.statvfs(SHARED_MEMORY)
        ready = {model: int(state == readiness.READY) for model, state in self.states().items()}
        families = [
            ("llm_router_model_ready", "Whether a model is ready", _by_model(ready)),
            ("llm_router_model_processes", "Living processes of a Python model", _by_model(self._processes())),
            ("llm_router_shared_memory_free_bytes", "Free in /dev/shm", {"": found.f_bavail * found.f_frsize}),
            ("llm_router_shared_memory_size_bytes", "Size of /dev/shm", {"": found.f_blocks * found.f_frsize}),
        ]
        return "".join(
            f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
            + "".join(f"{name}{labels} {value}\n" for labels, value in values.items())
            for name, help_text, values in families
        )


class _HttpServer(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, readiness_server: ReadinessServer) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.readiness_server = readiness_server
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = 5  # Seconds that a client may take to send its request.

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/ready":
            states = self.server.readiness_server.states()
            self._reply(200 if readiness.is_ready(states) else 503, "application/json", readiness.as_json(states))
        elif path == "/metrics":
            self._reply(200, "text/plain; version=0.0.4", self.server.readiness_server.metrics())
        else:
            self._reply(404, "text/plain", "try /ready or /metrics\n")

    def _reply(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a probe asks every few seconds."""


def _by_model(values: Mapping[str, int]) -> dict[str, int]:
    """By Prometheus labels."""
    return {f'{{model="{model}"}}': value for model, value in sorted(values.items())}
