"""What would stop a server, found before anything is started. Each check raises Refused with one line to act on."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

MIB = 1024 * 1024
# An instance of the python backend takes 1 MiB of /dev/shm at once, and grows by as much when a tensor doesn't fit.
SHM_MIB_PER_INSTANCE = 2
SHM_MIB_SPARE = 16
_SHELL = "\"'`$&;|<>()*?[]{}\\"


class Refused(Exception):
    """Nothing was started; the message is one line that says why and what to do."""


def check_path(what: str, path: Path) -> None:
    """Refuses a path that Triton's python backend, which hands it to a shell as it is and to a Python whose paths are
    ASCII whatever the locale (seen with Triton 2.51 and Python 3.11), would take apart or not find."""
    if not str(path).isascii():
        raise Refused(f"{what} {path} is not ASCII, so that tritonserver's python backend can't read it: move it")
    bad = next((character for character in str(path) if character.isspace() or character in _SHELL), None)
    if bad:
        raise Refused(
            f"{what} {path} has {bad!r} in its path, which tritonserver's python backend takes for the end of a word "
            "or a command: move it to a path without blanks, quotes and signs of the shell"
        )


def check_ports(host: str, ports: Mapping[str, int]) -> None:
    """`ports` by the flag that sets each. Refuses one that is taken, forbidden, or named twice."""
    for flag, port in ports.items():
        twin = next((other for other in ports if other != flag and ports[other] == port), None)
        if twin:
            raise Refused(f"{flag} and {twin} are both {port}: give each a port of its own")
        _check_port(host, flag, port)


def _check_port(host: str, flag: str, port: int) -> None:
    if not 0 < port < 65536:
        raise Refused(f"{flag} {port} is not a port (1 to 65535)")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the server does: connections of an earlier server that are still closing don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Refused(f"port {port} is taken: choose another one with {flag}") from None
        if error.errno == errno.EACCES:
            raise Refused(f"port {port} is not allowed for this user: choose one above 1023 with {flag}") from None
        raise Refused(f"cannot listen on {host}: {error.strerror or error}; choose an address with --host") from None


def shm_needed_mib(python_instances: int) -> int:
    """How much of /dev/shm a server with so many python model instances needs."""
    return python_instances * SHM_MIB_PER_INSTANCE + SHM_MIB_SPARE


def check_shared_memory(python_instances: int, folder: Path = Path("/dev/shm")) -> None:
    """Refuses a /dev/shm in which the stubs would die, such as a container's 64 MB."""
    needed = shm_needed_mib(python_instances)
    try:
        found = os.statvfs(folder)
    except OSError:
        raise Refused(f"{folder} is missing; tritonserver needs it, with {needed} MB free") from None
    free = found.f_bavail * found.f_frsize // MIB
    if free < needed:
        raise Refused(
            f"{folder} has {free} MB free, {python_instances} python model instances need {needed} MB: "
            f"start the container with --shm-size={_round_up(needed * 2, 64)}m, or lower instance_group counts"
        )


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def check_disk(folder: Path, needed_mib: int, purpose: str) -> None:
    """Refuses a disk that the set-up would fill."""
    free = shutil.disk_usage(folder).free // MIB
    if free < needed_mib:
        raise Refused(f"{folder} has {free} MB of disk free; {purpose} needs {needed_mib} MB")
