"""The thread of a router process that looks for an edited policy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bls.routing.policy_file import Policy
from bls.routing.reload import LOOK_SECONDS, Policies
from bls.routing.shadow_policy import ShadowPolicy


class PolicyThread:
    """Runs from when it is made until `close`. `show` is told after each look, to say which version decides."""

    def __init__(
        self,
        policies: Policies,
        shadow: ShadowPolicy,
        show: Callable[[Policy], None] = lambda policy: None,
    ) -> None:
        self._policies = policies
        self._show = show
        show(policies.current)
        self._shadow = shadow
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=LOOK_SECONDS)

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while not self._closed.wait(pause):
            try:
                pause = self._policies.look()
                self._show(self._policies.current)
                self._shadow.look(self._policies.current.settings)
            except Exception:  # This thread must outlive any one look.
                logging.exception("policy")
