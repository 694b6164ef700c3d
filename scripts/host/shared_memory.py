"""The files that Triton's python backend keeps in /dev/shm: one or more for each instance, left behind by a kill -9."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")
PREFIX = "llm_router_shm_"
BACKEND_PREFIX = "triton_python_backend_shm_region_"  # of servers that were started without a prefix of their own
FRESH_S = 5.0  # a file this new may be about to be mapped


def new_prefix() -> str:
    """A prefix that no other server uses, for `--backend-config=python,shm-region-prefix-name=`."""
    return f"{PREFIX}{os.getpid()}_{secrets.token_hex(4)}_"


def remove(prefix: str, folder: Path = FOLDER) -> list[str]:
    """Removes every file whose name starts with `prefix`; to be called once the server is gone. Returns their names."""
    return _remove(sorted(folder.glob(f"{prefix}*")))


def remove_stale(folder: Path = FOLDER, processes: Path = Path("/proc")) -> list[str]:
    """Removes this user's files of servers that are gone, which are those that no process maps. Returns their names."""
    # Listed before the maps are read: what appears later is somebody's who is starting.
    oldest_fresh = time.time() - FRESH_S
    candidates = [path for prefix in (PREFIX, BACKEND_PREFIX) for path in sorted(folder.glob(f"{prefix}*"))]
    ours = [path for path in candidates if _is_ours(path, oldest_fresh)]
    if not ours:
        return []
    mapped = _mapped_names(processes)
    return _remove(path for path in ours if path.name not in mapped)


def _is_ours(path: Path, oldest_fresh: float) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and found.st_mtime < oldest_fresh


def _mapped_names(processes: Path) -> set[str]:
    names: set[str] = set()
    for maps in processes.glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:  # it ended, or is another user's, whose files are left alone anyway
            continue
        names.update(line.rsplit("/", 1)[1] for line in lines if "/dev/shm/" in line)
    return names


def _remove(paths: Iterable[Path]) -> list[str]:
    removed = []
    for path in paths:
        try:
            path.unlink()
        except OSError:
            continue
        removed.append(path.name)
    return removed


def make_private(prefix: str, folder: Path = FOLDER) -> None:
    """Takes from other users what they may read, prompts and answers: the python backend makes its files 0644, whatever
    the umask says."""
    for path in folder.glob(f"{prefix}*"):
        with suppress(OSError):  # it has gone
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077:
                path.chmod(0o600)
