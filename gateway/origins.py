"""Pages of other origins that may ask from a browser; none unless they are listed."""

from __future__ import annotations

from gateway.exchange import Exchange

_HEADERS = (
    b"authorization, content-type, x-api-key, x-request-id, x-router-details, anthropic-version, "
    b"traceparent, tracestate"
)
_EXPOSED = b"x-request-id, x-router-model, x-router-reason, retry-after"


def headers(exchange: Exchange, origins: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """What a listed origin's browser needs to be told; nothing for any other."""
    origin = exchange.headers.get(b"origin", b"")
    if origin.decode("latin-1") not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def is_preflight(exchange: Exchange) -> bool:
    return exchange.method == "OPTIONS" and b"access-control-request-method" in exchange.headers


async def answer_preflight(exchange: Exchange) -> None:
    """A browser asks whether it may ask; no key comes with that."""
    more = [(b"access-control-allow-methods", b"GET, POST"), (b"access-control-allow-headers", _HEADERS)]
    await exchange.reply(204, b"", [*more, (b"access-control-max-age", b"600")])
