"""The trace that a request belongs to (W3C Trace Context), handed on to Triton, which takes it from gRPC's metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping

Trace = tuple[tuple[str, str], ...]
_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x21-\x7e][\x20-\x7e]{0,511}")


def context(headers: Mapping[bytes, bytes]) -> Trace:
    """As gRPC metadata; nothing where there is no trace, or none that is well-formed."""
    parent, state = headers.get(b"traceparent", b""), headers.get(b"tracestate", b"")
    if not _PARENT.fullmatch(parent):
        return ()
    found: Trace = (("traceparent", parent.decode()),)
    return (*found, ("tracestate", state.decode())) if _STATE.fullmatch(state) else found
