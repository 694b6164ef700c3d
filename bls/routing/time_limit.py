"""Ends a `choose` that doesn't come back: an endless loop, a sleep, a regular expression that explodes.

By a timer signal: it reaches the main thread alone, which is where a router process answers (python_backend 24.10), and
costs two system calls. A second thread could only raise at the next line of Python, and would have to be awake for it.
"""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

from bls.routing.decision import Decision, Prompt, State
from bls.routing.policy_file import Choose

DECISION_SECONDS = 0.25  # A decision takes some 20 us; on a machine with more to do than cores it may wait long.
_AGAIN_SECONDS = 0.05  # For a policy that catches the first.


class Stalled(BaseException):
    """Not an Exception, so that a policy's own `except Exception` doesn't swallow it."""


class PolicyStalled(Exception):
    """`choose` took longer than DECISION_SECONDS."""


class TimeLimit:
    """Calls `choose` within a time limit, where it is made and called in the main thread; elsewhere without one."""

    def __init__(self, seconds: float = DECISION_SECONDS) -> None:
        self._seconds = seconds
        self._armed = False
        self._limits = threading.current_thread() is threading.main_thread()
        if self._limits:
            signal.signal(signal.SIGALRM, self._over)
        else:
            logging.warning("a policy that loops for ever would hold its process: this is not the main thread")

    def _over(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise Stalled

    def __call__(self, choose: Choose, prompt: Prompt, state: State) -> Decision:
        """Raises what `choose` raises, or PolicyStalled."""
        if not self._limits or threading.get_ident() != threading.main_thread().ident:
            return choose(prompt, state)
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN_SECONDS)
            try:
                return choose(prompt, state)
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Stalled as stalled:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            error = PolicyStalled(f"choose did not come back within {self._seconds:g} seconds")
            raise error.with_traceback(stalled.__traceback__) from None
