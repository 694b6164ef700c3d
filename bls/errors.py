"""What can go wrong with a request, named for what the caller can do about it.

RouterError
├── BadRequest          the caller's fault: fix the request            [BAD_REQUEST]  INVALID_ARG
├── Refused             not this prompt: the checks let it not pass    [REFUSED]      INVALID_ARG
├── Busy                a queue is full: try again a little later      [BUSY]         UNAVAILABLE
│   └── Overloaded      and pausing here wouldn't help                 [BUSY]         UNAVAILABLE
├── EngineUnavailable   not answering: try another                     [UNAVAILABLE]  UNAVAILABLE
│   └── NotLoaded       and known at once                              [UNAVAILABLE]  UNAVAILABLE
├── TimedOut            its time ran out before anything was produced  [TIMEOUT]      UNAVAILABLE
├── Cancelled           the caller left                                [CANCELLED]    CANCELLED
└── EngineFailed        the engine took the request and broke          [INTERNAL]     INTERNAL

`/generate` answers every model error with HTTP 400, whatever its code, so the class stands before the message too.
"""

from __future__ import annotations

import logging


class RouterError(Exception):
    """An error that a caller may read: one line, without a path or a traceback."""

    prefix = "INTERNAL"
    code = "INTERNAL"  # A name of Triton's error codes.

    def __str__(self) -> str:
        return f"[{self.prefix}] {self.reason}"

    @property
    def reason(self) -> str:
        """The message without its prefix, on one line."""
        return " ".join(super().__str__().split())


class BadRequest(RouterError):
    prefix = "BAD_REQUEST"
    code = "INVALID_ARG"


class Refused(RouterError):
    prefix = "REFUSED"
    code = "INVALID_ARG"


class Busy(RouterError):
    """The message says after how many seconds to try again."""

    prefix = "BUSY"
    code = "UNAVAILABLE"

    def __init__(self, message: str, retry_seconds: int = 1) -> None:
        has_hint = "retry after" in message  # It came from another process in these words.
        super().__init__(message if has_hint else f"{message}; retry after {retry_seconds} s")


class Overloaded(Busy):
    pass


class EngineUnavailable(RouterError):
    prefix = "UNAVAILABLE"
    code = "UNAVAILABLE"


class NotLoaded(EngineUnavailable):
    pass


class TimedOut(RouterError):
    prefix = "TIMEOUT"
    code = "UNAVAILABLE"


class Cancelled(RouterError):
    prefix = "CANCELLED"
    code = "CANCELLED"


class EngineFailed(RouterError):
    pass


_KINDS = (BadRequest, Refused, Busy, EngineUnavailable, TimedOut, Cancelled, EngineFailed)
_BY_PREFIX = {kind.prefix: kind for kind in _KINDS}

NOT_READY = "is not ready"  # Of a model, said by Triton's core, and by one that has its engine elsewhere.

# What Triton's core says of a model, in its own words (Triton 2.51).
_BY_CORE_TEXT = (
    (NOT_READY, NotLoaded),
    ("is not found", NotLoaded),
    ("has no available versions", NotLoaded),
    ("is not healthy", EngineUnavailable),
    ("Server not ready", EngineUnavailable),
    ("has stopped accepting new", EngineUnavailable),
    ("Exceeds maximum queue size", Busy),
    ("Request timeout expired", TimedOut),
)


def from_message(message: str) -> RouterError:
    """The error that a model's or the core's message stands for, by our prefix or Triton's words; else EngineFailed."""
    if message.startswith("["):
        prefix, _, rest = message[1:].partition("] ")
        if prefix in _BY_PREFIX:
            kind = _BY_PREFIX[prefix]
            return NotLoaded(rest) if kind is EngineUnavailable and NOT_READY in rest else kind(rest)
    for text, kind in _BY_CORE_TEXT:
        if text in message:
            return kind(message)
    logging.error("a model failed: %s", message)  # It may hold paths and stacks, so it is not for the client.
    return EngineFailed("the engine failed; the server's log says why")
