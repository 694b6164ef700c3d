"""Takes a secret out of what `ps` shows of a program that accepts it in no other way than on its command line.

Every user of a machine may read every command line there (unless /proc is mounted with hidepid=2). A command line is
memory of the process itself, so its own user can write something else there, once the process has taken in its options.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scripts.host import processes

LOOK_S = 0.005
LAUNCHER_LOOK_S = 0.1  # which costs more, as all processes are looked at
_START, _END = 45, 46  # arg_start and arg_end among the fields of /proc/<pid>/stat behind the name, see proc(5)


def hide_later(
    child: subprocess.Popen[bytes], program: str, secret: str, failed: Callable[[str], None]
) -> threading.Thread:
    """Hides `secret` in `child` and all below it once one of them, a `program`, has begun to work; in a thread.

    failed: told why, where that is not possible.
    """
    thread = threading.Thread(target=_hide_later, args=(child, program, secret, failed), daemon=True)
    thread.start()
    return thread


def _hide_later(child: subprocess.Popen[bytes], program: str, secret: str, failed: Callable[[str], None]) -> None:
    while not any(_works(pid, program) for pid in _searched(child.pid, program)):
        if child.poll() is not None:
            return
        time.sleep(LOOK_S if processes.role(child.pid) == program else LAUNCHER_LOOK_S)
    # As random as the secret: what took this one for its own would be shut to all, not open to who looks at `ps`.
    instead = secrets.token_hex(len(secret))[: len(secret)]
    for pid in processes.tree(child.pid):
        if secret in " ".join(processes.command(pid)) and (reason := overwrite(pid, secret, instead)):
            failed(reason)


def _searched(pid: int, program: str) -> list[int]:
    """The process alone where it is a `program`; with all below it where it is what starts one, such as mpirun."""
    return [pid] if processes.role(pid) == program else list(processes.tree(pid))


def _works(pid: int, program: str) -> bool:
    """Whether it has threads, of which tritonserver starts none before it has read its options."""
    with suppress(OSError):
        return processes.role(pid) == program and len(os.listdir(f"/proc/{pid}/task")) > 1
    return False


def overwrite(pid: int, secret: str, instead: str) -> str:
    """Puts `instead`, which is as long, wherever `secret` stands in the process's command line; why not, if not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            shown = memory.read(end - start)
            for place in _places(shown, secret.encode()):
                memory.seek(start + place)
                memory.write(instead.encode())
    except OSError as error:
        return f"process {pid}: {error.strerror}" if processes.is_alive(pid) else ""
    return ""


def _places(text: bytes, wanted: bytes) -> list[int]:
    found, place = [], text.find(wanted)
    while place >= 0:
        found.append(place)
        place = text.find(wanted, place + len(wanted))
    return found
