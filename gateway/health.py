"""/health, /ready and /metrics."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from urllib.parse import urlsplit

from gateway.ask import ROUTER
from gateway.failures import Away, Draining
from gateway.visit import Visit

_PLAIN = b"text/plain; version=0.0.4; charset=utf-8"
_KEPT_S = 0.05  # Triton's page: so many scrapes a second cost it no more
_LONGEST_S = 2.0
_page: tuple[float, bytes] = (0.0, b"")


async def health(visit: Visit) -> None:
    """The process answers; says nothing of the server behind it."""
    await visit.exchange.reply(200, b"", kind=b"text/plain")


async def ready(visit: Visit) -> None:
    """200 while new requests would be answered: the router is there and the gateway stays."""
    if visit.gateway.is_draining:
        raise Draining("the gateway is about to end")
    if not await visit.gateway.triton.is_ready(ROUTER):
        raise Away("the router is not ready")
    await visit.exchange.reply(200, b"", kind=b"text/plain")


async def metrics(visit: Visit) -> None:
    """Triton's page as it is, then the gateway's own, of all its workers together."""
    gateway = visit.gateway
    gateway.publish()
    shared = gateway.shared
    own = gateway.metrics.with_others(shared.pages.others(shared.worker) if shared.pages else [])
    await visit.exchange.reply(200, await _tritons_page(gateway.settings.triton_metrics) + own.page(), kind=_PLAIN)


async def _tritons_page(url: str) -> bytes:
    """Nothing where it can't be had: the gateway's own figures are still worth reading."""
    global _page
    asked_at = time.monotonic()
    if not url or asked_at - _page[0] < _KEPT_S:
        return _page[1]
    with suppress(OSError, asyncio.TimeoutError, ValueError):
        _page = asked_at, await asyncio.wait_for(_get(url), _LONGEST_S)
        return _page[1]
    return b""


async def _get(url: str) -> bytes:
    """The body of an HTTP/1.0 GET. Raises OSError for any other answer than 200."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    try:
        host = parts.netloc.encode()
        writer.write(b"GET %b HTTP/1.0\r\nHost: %b\r\nConnection: close\r\n\r\n" % (parts.path.encode() or b"/", host))
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if head.split(b" ", 2)[1:2] != [b"200"] or b"chunked" in head.lower():
        raise OSError("no metrics there")
    return body if body.endswith(b"\n") else body + b"\n"
