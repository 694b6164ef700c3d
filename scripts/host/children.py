"""Child processes that are stopped whole, and that don't outlive this one, however it ends."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from scripts.host import processes

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before any fork


def start(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, output: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Starts `command` as the head of a process group of its own, which a ctrl-C of the terminal does not reach.

    Its stdout and stderr both go to `output`. It gets SIGTERM if this process dies, even by kill -9.
    """
    return subprocess.Popen(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_tie_to(os.getpid()),
    )


def lines(child: subprocess.Popen[bytes], tick_s: float) -> Iterator[str | None]:
    """Yields each line that `child` prints, and None every `tick_s` without one; ends when the child has ended."""
    assert child.stdout is not None
    descriptor, pending = child.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:  # select() knows no descriptors from 1,024 on
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(tick_s):
                yield None
                continue
            read = os.read(descriptor, 65536)
            *whole, pending = (pending + read).replace(b"\r", b"\n").split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
            if not read:
                break
    if pending:
        yield pending.decode(errors="replace")
    child.wait()
    child.stdout.close()


def _tie_to(parent: int) -> Callable[[], None]:
    def tie() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return tie


def kill_group(group: int, patience_s: float = 5.0) -> None:
    """Kills what is left of the process group `group`, and waits until none of it lives."""
    end = time.monotonic() + patience_s
    # The dead that nobody has waited for stay in the group: orphans are their new parent's, which may take seconds.
    while _signal_group(group, signal.SIGKILL) and time.monotonic() < end and processes.has_living(group):
        time.sleep(0.02)


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextmanager
def killed_on_error(child: subprocess.Popen[bytes], patience_s: float = 5.0) -> Iterator[None]:
    """Stops `child` and its group when the block is left by an exception, a signal's included."""
    try:
        yield
    except BaseException:
        _signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _signal_group(child.pid, signal.SIGKILL)
            child.wait()
            kill_group(child.pid)
        raise
