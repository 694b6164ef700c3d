"""What an OpenTelemetry collector is to tritonserver: it takes spans over HTTP, and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Collector:
    def __init__(self, url: str) -> None:
        self.flags = (
            "--trace-config=mode=opentelemetry",
            f"--trace-config=opentelemetry,url={url}/v1/traces",
            "--trace-config=rate=1000000000",  # of requests without a trace of their own: as good as none
            "--trace-config=level=TIMESTAMPS",
        )
        self.spans = b""


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.spans += self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
