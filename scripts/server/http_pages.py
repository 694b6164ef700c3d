"""Pages that scripts/serve answers itself, beside tritonserver, each from a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

METRICS_TYPE = "text/plain; version=0.0.4"


@dataclass(frozen=True)
class Page:
    """What a GET gets."""

    status: int
    content_type: str
    text: str


@contextmanager
def listening(host: str, port: int, page: Callable[[str], Page]) -> Iterator[int]:
    """Answers `page` of each path while the block runs. Yields the port, which is chosen for 0."""
    with _HttpServer(host, port, page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=f"pages of port {port}", daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, page: Callable[[str], Page]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.page = page
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a client that left before its answer is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = 5  # Seconds that a client may take to send its request.

    def do_GET(self) -> None:
        page = self.server.page(self.path.partition("?")[0])
        body = page.text.encode()
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a probe asks every few seconds."""
