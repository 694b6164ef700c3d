"""What can go wrong, named for what the client can do about it; each is an OpenAI error with its HTTP status.

Failure
├── BadRequest     400  the request must change
├── NoKey          401  no key, or one that isn't known
├── Forbidden      403  the key may not do this
├── NotFound       404  no such model or path            ├── WrongMethod   405
├── TooLate        408  the body did not come            ├── TooLarge      413    ├── NotJson  415
├── LimitReached   429  of the key: later
├── Overloaded     503  a queue is full, or the gateway is draining: a little later
├── Away           503  the server or its engines are not there
├── TimedOut       504  asking again would only cost the same again
└── Broken         500  the engine took the request and failed
"""

from __future__ import annotations

import msgspec


class Failure(Exception):
    """`retry_after` is in seconds; `should_retry` overrides the rules of OpenAI's SDKs, None leaves it to them."""

    status = 500
    type = "server_error"
    code: str | None = None
    retry_after: float | None = None
    should_retry: bool | None = None

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code

    def body(self) -> bytes:
        """OpenAI's error object: all four keys, always."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Advice on when to ask again."""
        found = []
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % max(1, round(self.retry_after + 0.499))))
            found.append((b"retry-after-ms", b"%d" % max(1, round(self.retry_after * 1000))))
        if self.should_retry is not None:
            found.append((b"x-should-retry", b"true" if self.should_retry else b"false"))
        return found


class BadRequest(Failure):
    status = 400
    type = "invalid_request_error"


class NoKey(Failure):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"
    challenge = b"Bearer"

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"www-authenticate", self.challenge)]


class Forbidden(Failure):
    status = 403
    type = "permission_error"


class NotFound(Failure):
    status = 404
    type = "invalid_request_error"


class WrongMethod(Failure):
    status = 405
    type = "invalid_request_error"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"allow", self.allowed.encode())]


class _Closing(Failure):
    """What is left of the request is not read, so the connection can't serve another."""

    type = "invalid_request_error"

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*super().headers(), (b"connection", b"close")]


class TooLate(_Closing):
    status = 408
    should_retry = False


class TooLarge(_Closing):
    status = 413
    code = "content_too_large"


class NotJson(_Closing):
    status = 415


class LimitReached(Failure):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, retry_after: float | None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after
        if retry_after is None:
            self.should_retry = False


class Overloaded(Failure):
    status = 503
    type = "overloaded_error"
    retry_after = 1.0


class AboutToEnd(Overloaded):
    """Another gateway may take it; the response closes the connection, as all do meanwhile."""


class Away(Failure):
    status = 503
    type = "service_unavailable"
    retry_after = 2.0


class TimedOut(Failure):
    status = 504
    type = "timeout_error"
    should_retry = False


class Broken(Failure):
    should_retry = False
