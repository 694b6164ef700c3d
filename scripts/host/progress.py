"""One line of progress a step: rewritten in place on a terminal, a new line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from typing import TextIO

PLAIN_INTERVAL_S = 10.0  # how often a step that says nothing new is shown again where lines can't be rewritten


class Progress:
    """Shows what is being done, with what it brings and the seconds so far. Use: step, status..., done."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._title = self._text = self._shown = ""
        self._started = self._shown_at = 0.0

    def step(self, title: str, brings: str = "") -> None:
        """Begins a step; `brings` is what the person waits for."""
        self._title, self._shown, self._shown_at = title, "", 0.0
        self._started = time.monotonic()
        if brings or self._rewrites:
            self.status(brings)

    def status(self, text: str | None = None) -> None:
        """Says what the step is at, None for no news; called at least once a second so that the clock moves."""
        now = time.monotonic()
        text = self._text = self._text if text is None else text
        if self._rewrites:
            self._draw(self._line(text, now))
        elif text != self._shown or now - self._shown_at >= PLAIN_INTERVAL_S or not self._shown_at:
            self._write(f"{self._line(text, now)}\n")
            self._shown, self._shown_at = text, now

    def done(self, text: str = "done") -> None:
        """Ends the step with a line that stays."""
        line = self._line(text, time.monotonic())
        if self._rewrites:
            self._draw(line)
        self._write("\n" if self._rewrites else f"{line}\n")

    def say(self, text: str) -> None:
        """Prints a line of its own, above the one that is being rewritten."""
        self._write(f"\r\x1b[K{text}\n" if self._rewrites else f"{text}\n")

    def _line(self, text: str, now: float) -> str:
        return (
            f"{self._title}: {text} ({now - self._started:.0f} s)"
            if text
            else f"{self._title} ({now - self._started:.0f} s)"
        )

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r\x1b[K{line[:width]}")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be closed, which is no reason to end a server
            self._stream.write(text)
            self._stream.flush()
