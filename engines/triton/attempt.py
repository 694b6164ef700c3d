"""What Triton raises for one client must not end the thread that serves all."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


def attempt(what: str, act: Callable[[], object]) -> bool:
    """Whether it went well; if not, the log says what it was."""
    try:
        act()
    except Exception:
        log.exception(what)
        return False
    return True
