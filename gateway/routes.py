"""Which function answers which path, which paths need no key, and how each API words an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gateway import chat, completions, embeddings, health, messages, models, page, responses
from gateway.exchange import Exchange
from gateway.failures import Failure, Forbidden, NotFound, WrongMethod
from gateway.settings import Settings
from gateway.visit import Visit

Handler = Callable[[Visit], Awaitable[None]]
_ROUTES: dict[str, tuple[str, Handler]] = {
    "/v1/chat/completions": ("POST", chat.create),
    "/v1/completions": ("POST", completions.create),
    "/v1/embeddings": ("POST", embeddings.create),
    "/v1/responses": ("POST", responses.create),
    "/v1/messages": ("POST", messages.create),
    "/v1/messages/count_tokens": ("POST", messages.count_tokens),
    "/v1/models": ("GET", models.listed),
    "/metrics": ("GET", health.metrics),
    "/health": ("GET", health.health),
    "/ping": ("GET", health.health),
    "/ready": ("GET", health.ready),
    "/health/ready": ("GET", health.ready),
}
_MODEL = "/v1/models/"
_PAGE: tuple[str, Handler] = ("GET", page.show)
_ONE_MODEL: tuple[str, Handler] = ("GET", models.one)
_ANTHROPIC = "/v1/messages"
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}
_OPEN = ("/health", "/ping", "/ready", "/health/ready")
QUIET = (*_OPEN, "/metrics")  # no line in the log


def find(exchange: Exchange, settings: Settings) -> tuple[Handler, bool]:
    """The function, and whether it is open to all. Raises NotFound or WrongMethod."""
    path = exchange.path
    if path.startswith(_MODEL):
        allowed, handler = _ONE_MODEL
    elif path in page.FILES and settings.has_page:
        allowed, handler = _PAGE
    elif path in _ROUTES:
        allowed, handler = _ROUTES[path]
    else:
        raise NotFound(f"there is no {path[:64]!r} here")
    if exchange.method != allowed and (exchange.method, allowed) != ("HEAD", "GET"):
        raise WrongMethod(f"{path[:64]} takes {allowed} only", allowed)
    return handler, path in _OPEN or (path == "/metrics" and settings.metrics_are_open)


def check_host(exchange: Exchange, settings: Settings) -> None:
    """Without keys only this machine may ask, and by its own name.

    A page from elsewhere can have its name point to this machine, and a browser here would then ask for it. Raises
    Forbidden.
    """
    if settings.keys is None and not settings.is_open and not is_own_name(exchange.headers, settings.host):
        raise Forbidden("without keys the gateway answers on localhost alone: use that name, --keys or --open")


def is_own_name(headers: Mapping[bytes, bytes], host: str) -> bool:
    """Whether a request came by a name that only this machine has, or by `host`, the address that is listened on."""
    name = headers.get(b"host", b"localhost").decode("latin-1").lower()
    name = name[: name.rfind("]") + 1] if name.startswith("[") else name.partition(":")[0]
    return name in ("localhost", "127.0.0.1", "[::1]", host)


def label(path: str) -> str:
    """The path as the metrics know it: one that a client made up is no label."""
    if path.startswith(_MODEL):
        return "/v1/models/*"
    return path if path in _ROUTES or path in page.FILES else "other"


def challenge(exchange: Exchange) -> bytes:
    """How a client is told to bring a key."""
    # A person's browser then asks for the key, as a password, and brings it along from then on.
    return b'Basic realm="LLM router: the key is the password"' if exchange.path in page.FILES else b"Bearer"


def error_body(exchange: Exchange, failure: Failure) -> bytes:
    """The body of a response that is nothing but the error."""
    if exchange.path.startswith(_ANTHROPIC):
        return _anthropic(exchange, failure)
    return failure.body()


def error_event(exchange: Exchange, failure: Failure) -> bytes:
    """The last event of a stream that breaks."""
    if exchange.path.startswith(_ANTHROPIC):
        return b"event: error\ndata: " + _anthropic(exchange, failure) + b"\n\n"
    if exchange.path == "/v1/responses":
        error = {
            "type": "error",
            "code": failure.code or failure.type,
            "message": failure.message,
            "param": failure.param,
            "sequence_number": exchange.sequence,
        }
        return b"event: error\ndata: " + msgspec.json.encode(error) + b"\n\n"
    # Never with `event: error`: OpenAI's clients then see an empty message.
    return b"data: " + failure.body() + b"\n\n"


def _anthropic(exchange: Exchange, failure: Failure) -> bytes:
    error = {"type": _ANTHROPIC_TYPES.get(failure.status, failure.type), "message": failure.message}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": exchange.request_id})
