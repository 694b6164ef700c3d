"""The chat page at `/`: three files of static/, read once. It talks to this gateway alone, as any client does."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from gateway.visit import Visit

FOLDER = Path(__file__).resolve().parent / "static"
FILES = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/page/page.css": ("page.css", b"text/css; charset=utf-8"),
    "/page/page.js": ("page.js", b"text/javascript; charset=utf-8"),
}
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


async def show(visit: Visit) -> None:
    name, kind = FILES[visit.exchange.path]
    await visit.exchange.reply(200, _content(name), _HEADERS, kind)


@lru_cache
def _content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()
