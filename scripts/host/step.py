"""Runs one program of the set-up, to its end or not at all: its output to a log, its progress to the person."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.host import children
from scripts.host.progress import Progress


class StepFailed(Exception):
    """The program failed; `lines` is what it printed, `status` its exit status, or -9 if signal 9 ended it."""

    def __init__(self, lines: list[str], status: int) -> None:
        super().__init__(lines[-1] if lines else "")
        self.lines = lines
        self.status = status


def run_step(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    log_file: Path,
    progress: Progress,
    status: Callable[[str], str | None],
) -> None:
    """Runs `command` in `folder`; `status` says what a line of its output means to a person. Raises StepFailed.

    An exception while it runs, a signal's included, ends it with all that it started.
    """
    lines: list[str] = []
    with log_file.open("ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        child = children.start(command, env, folder, subprocess.PIPE)
        with child, children.killed_on_error(child):
            for line in children.lines(child, tick_s=1.0):
                if line is not None:
                    log.write(line.encode() + b"\n")
                    lines.append(line)
                progress.status(None if line is None else status(line))
    if child.returncode:
        raise StepFailed(lines, child.returncode)
