"""/health, /ready and /metrics."""

from __future__ import annotations

from gateway.ask import ROUTER
from gateway.failures import AboutToEnd, Away
from gateway.visit import Visit

_PLAIN = b"text/plain; version=0.0.4; charset=utf-8"


async def health(visit: Visit) -> None:
    """The process answers; says nothing of the server behind it."""
    await visit.exchange.reply(200, b"", kind=b"text/plain")


async def ready(visit: Visit) -> None:
    """200 while new requests would be answered: the router is there and the gateway stays."""
    if visit.gateway.draining.is_on:
        raise AboutToEnd("the gateway is about to end")
    if not await visit.gateway.triton.is_ready(ROUTER):
        raise Away("the router is not ready")
    await visit.exchange.reply(200, b"", kind=b"text/plain")


async def metrics(visit: Visit) -> None:
    """Triton's page as it is, then the gateway's own, of all its workers together."""
    gateway = visit.gateway
    own = gateway.all_metrics()
    await visit.exchange.reply(200, await gateway.tritons_page.read() + own.page(), kind=_PLAIN)
