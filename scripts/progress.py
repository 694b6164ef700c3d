"""One line of progress a step: rewritten in place on a terminal, a new line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

PLAIN_INTERVAL_S = 10.0  # how often a step that says nothing new is shown again where lines can't be rewritten


class Progress:
    """Shows what is being done, with what it brings and the seconds so far. Use: step, status..., done."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._title = self._shown = ""
        self._started = self._shown_at = 0.0

    def step(self, title: str, brings: str = "") -> None:
        """Begins a step; `brings` is what the person waits for."""
        self._title, self._shown, self._shown_at = title, "", 0.0
        self._started = time.monotonic()
        self.status(brings)

    def status(self, text: str) -> None:
        """Says what the step is at; called at least once a second so that the clock moves."""
        now = time.monotonic()
        if self._rewrites:
            self._draw(self._line(text, now))
        elif text != self._shown or now - self._shown_at >= PLAIN_INTERVAL_S or not self._shown_at:
            print(self._line(text, now), file=self._stream, flush=True)
            self._shown, self._shown_at = text, now

    def done(self, text: str = "done") -> None:
        """Ends the step with a line that stays."""
        line = self._line(text, time.monotonic())
        if self._rewrites:
            self._draw(line)
        print("" if self._rewrites else line, file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Prints a line of its own, above the one that is being rewritten."""
        if self._rewrites:
            self._stream.write("\r\x1b[K")
        print(text, file=self._stream, flush=True)

    def _line(self, text: str, now: float) -> str:
        return f"{self._title}: {text} ({now - self._started:.0f} s)" if text else f"{self._title} ({now - self._started:.0f} s)"

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{line[:width]}")
        self._stream.flush()
