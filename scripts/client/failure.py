"""Why a request of the client has no whole answer, and whether asking again is safe."""

from __future__ import annotations

import re
from typing import Any

from tritonclient.utils import InferenceServerException

# What Triton's core says for itself, without a word in front (Triton 2.51).
_CORE_WORDS = (
    ("Exceeds maximum queue size", "BUSY"),
    ("Request timeout expired", "TIMEOUT"),
    ("has no available versions", "UNAVAILABLE"),
    ("is not ready", "UNAVAILABLE"),
)
# What gRPC would call it: a stream's errors come without a code (Triton 2.51).
_CODES = {
    "BAD_REQUEST": "INVALID_ARGUMENT",
    "REFUSED": "INVALID_ARGUMENT",
    "BUSY": "UNAVAILABLE",
    "UNAVAILABLE": "UNAVAILABLE",
    "TIMEOUT": "UNAVAILABLE",
    "CANCELLED": "CANCELLED",
    "INTERNAL": "INTERNAL",
}


class RequestFailed(Exception):
    """A request without a (whole) answer; `str()` is one line.

    `code` is gRPC's name, such as INVALID_ARGUMENT. `kind` is the repository's own word where the message has one
    (BUSY, TIMEOUT, BAD_REQUEST ...), else the code: count errors by it. `attempts`: how often the request was sent.
    """

    def __init__(self, code: str, message: str, attempts: int = 0) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = " ".join(message.split())
        self.attempts = attempts

    def __str__(self) -> str:
        return self.message if self.message.startswith("[") else f"{self.code}: {self.message}"

    @property
    def kind(self) -> str:
        return _word(self.message) or self.code

    @property
    def is_retryable(self) -> bool:
        """Whether the server or the way to it was not there, which may pass; that its time ran out will not."""
        return self.kind in ("UNAVAILABLE", "BUSY")


def _word(message: str) -> str:
    # Not only at its begin: an ensemble puts its name before what a member says.
    found = re.search(r"\[([A-Z_]+)\] ", message)
    return found[1] if found else next((word for text, word in _CORE_WORDS if text in message), "")


def from_rpc(error: Any, deadline_s: float) -> RequestFailed:
    """What a grpc.aio.AioRpcError or tritonclient's exception stands for."""
    if isinstance(error, InferenceServerException):
        code, message = (error.status() or "UNKNOWN").removeprefix("StatusCode."), error.message()
        if code == "UNKNOWN":
            code = "NOT_FOUND" if "unknown model" in message else _CODES.get(_word(message), code)
    else:
        code, message = error.code().name, error.details()
    if code == "INTERNAL" and message == "Internal error from Core":  # grpc.aio, of a connection that has just gone
        code = "UNAVAILABLE"
    if code == "DEADLINE_EXCEEDED":
        message = f"the answer had not ended after {deadline_s:g} s"
    return RequestFailed(code, message or "the server gave no reason")
