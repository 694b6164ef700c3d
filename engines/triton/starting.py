"""How an engine's model takes what Triton gives it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from bls import errors, triton_io

log = logging.getLogger(__name__)


def start_each(requests: Sequence[Any], start: Callable[[Any, triton_io.Sender], None]) -> None:
    """Calls `start(request, sender)`, which returns at once, for each request. Whatever it raises ends that request."""
    for request in requests:
        sender = triton_io.Sender(request)
        try:
            start(request, sender)
        except errors.RouterError as error:
            sender.finish(error=error)
        except Exception as error:  # A bug of ours must not leave the caller waiting.
            log.exception("request %s", request.request_id())
            sender.finish(error=errors.EngineFailed(type(error).__name__))
