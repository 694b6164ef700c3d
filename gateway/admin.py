"""The admin door: a port of its own, on which the gateway is told to drain, or to serve again.

    POST /drain      /ready says no, after the lame duck's time new requests are turned away, those that run go on
    POST /undrain    takes it back
    GET  /drain      {"draining": true, "refusing": true, "in_flight": 2}, which the others answer too

It asks for no key, so it listens on this machine alone unless it's told otherwise, and it takes nothing from a page in
a browser. It is served beside --max-connections, so that a gateway that is full can be drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gateway.routes import is_own_name

if TYPE_CHECKING:
    from gateway.app import Gateway

_PATHS = {"/drain": ("GET", "POST"), "/undrain": ("POST",)}
_OF_BROWSERS = (b"origin", b"sec-fetch-site")


class Admin:
    """An ASGI application. `host` is the address that it listens on."""

    def __init__(self, gateway: Gateway, host: str) -> None:
        self._gateway = gateway
        self._host = host

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, answer = self._answer(scope["method"], scope["path"], dict(scope["headers"]))
        body = msgspec.json.encode(answer) + b"\n"
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, path: str, headers: dict[bytes, bytes]) -> tuple[int, dict[str, Any]]:
        if any(name in headers for name in _OF_BROWSERS) or not is_own_name(headers, self._host):
            return 403, {"error": "not for pages in a browser, nor by another name than this machine's"}
        if path not in _PATHS:
            return 404, {"error": "there are POST /drain, POST /undrain and GET /drain"}
        if method not in _PATHS[path]:
            return 405, {"error": f"{path} takes {' and '.join(_PATHS[path])}"}
        if method == "POST":
            self._gateway.draining.set(path == "/drain")
            self._gateway.draining.look(self._gateway.running)
        return 200, self._state()

    def _state(self) -> dict[str, Any]:
        """Of all processes, a quarter of a second behind."""
        draining = self._gateway.draining
        in_flight = int(self._gateway.all_metrics().value("llm_gateway_in_flight"))
        return {"draining": draining.is_on, "refusing": draining.refuses, "in_flight": in_flight}
