"""The thread of a router process that looks for an edited policy and keeps the state of the engines fresh."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from bls.routing.engine_health import STALE_SECONDS, EngineHealth
from bls.routing.policy_file import Policy
from bls.routing.reload import LOOK_SECONDS, Policies
from bls.routing.shadow_policy import ShadowPolicy

_IDLE_SECONDS = 5.0  # Without a request for so long nobody needs a fresh state.


class PolicyThread:
    """Runs from when it is made until `close`. `show` is told after each look, to say which version decides."""

    def __init__(
        self,
        policies: Policies,
        health: EngineHealth,
        shadow: ShadowPolicy,
        show: Callable[[Policy], None] = lambda policy: None,
    ) -> None:
        self._policies = policies
        self._show = show
        show(policies.current)
        self._shadow = shadow
        self._health = health
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=LOOK_SECONDS)

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while not self._closed.wait(min(pause, STALE_SECONDS)):
            try:
                pause = self._policies.look()
                self._show(self._policies.current)
                self._shadow.look(self._policies.current.settings)
                if time.monotonic() - self._health.used_at < _IDLE_SECONDS:
                    self._health.refresh(self._policies.current.settings)
            except Exception:  # This thread must outlive any one look.
                logging.exception("policy")
