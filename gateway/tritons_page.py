"""Triton's page of metrics, fetched for the gateway's own: at most ten times a second, however many scrape.

An endpoint picker reads it every 50 ms and decides by it where the next request goes; Triton's own page takes longer to
write than the gateway's.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from urllib.parse import urlsplit

KEPT_S = 0.1
_LONGEST_S = 2.0


class TritonsPage:
    """`url` is where it is, "" for nowhere. Must be used in one event loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._page = b""
        self._asked_at = float("-inf")
        self._fetch: asyncio.Task[bytes] | None = None

    async def read(self) -> bytes:
        """Nothing where it can't be had: the gateway's own figures are still worth reading."""
        if not self._url:
            return b""
        if self._fetch is None:
            if time.monotonic() - self._asked_at < KEPT_S:
                return self._page
            self._fetch = asyncio.create_task(self._fetched())
        # Of those who wait for it, one that leaves must not end it for the others.
        return await asyncio.shield(self._fetch)

    async def _fetched(self) -> bytes:
        self._asked_at, self._page = time.monotonic(), b""
        with suppress(OSError, asyncio.TimeoutError, ValueError):
            self._page = await asyncio.wait_for(_get(self._url), _LONGEST_S)
        self._fetch = None
        return self._page


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
