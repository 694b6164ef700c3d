"""The metrics page of the server that serves at the moment, at a port that stays.

tritonserver can share its HTTP and gRPC ports with the server that takes over from it, but not its metrics port. So
each has one of its own on this machine alone, and this hands the page on, byte for byte.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager

from scripts.server import http_pages
from scripts.server.http_pages import METRICS_TYPE, Page

LOCAL = "127.0.0.1"


def read(port: int, timeout_s: float = 1.0) -> str:
    """The page of the server whose metrics are at `port` of this machine; "" where it gives none."""
    connection = http.client.HTTPConnection(LOCAL, port, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        return text if answer.status == 200 else ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def listening(host: str, port: int, text: Callable[[], str]) -> AbstractContextManager[int]:
    """Hands `text` on at host:port while the block runs."""

    def page(path: str) -> Page:
        if path != "/metrics":
            return Page(404, "text/plain", "there is /metrics\n")
        found = text()
        return Page(200, METRICS_TYPE, found) if found else Page(503, "text/plain", "no server gives metrics now\n")

    return http_pages.listening(host, port, page)
