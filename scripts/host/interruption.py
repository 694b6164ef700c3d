"""The signals that ask a script to stop."""

from __future__ import annotations

import signal


class Interrupted(BaseException):
    """SIGINT or SIGTERM came in a place where there is nothing to do but leave."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM, and SIGHUP unless it is ignored, as under nohup."""
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)


def interruptible() -> None:
    """Makes the signals that ask to stop raise Interrupted."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(number)

    for number in stop_signals():
        signal.signal(number, interrupt)
