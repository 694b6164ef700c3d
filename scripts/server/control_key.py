"""The key to what changes a server from outside: its models, traces, log and shared memory.

Whoever may load a model runs code as the server's user, so these parts of Triton's HTTP and gRPC interfaces ask for a
header that is made anew at each start. It lies beside the log, for this user alone, as the line that curl takes:

    curl -H @logs/tritonserver-8000.log.key -X POST localhost:8000/v2/repository/index
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bls.paths import ROOT
from scripts.server.server_options import flag_values

HEADER = "llm-router-control-key"
GRPC_PREFIX = "triton-grpc-protocol-"  # which Triton puts before the name in a gRPC call's metadata
# What remains open: health, metadata, model-config, statistics, inference.
APIS = ("model-repository", "trace", "logging", "shared-memory")
HTTP_FLAG, GRPC_FLAG = "--http-restricted-api", "--grpc-restricted-protocol"
KEY_BYTES = 32


@dataclass(frozen=True)
class ControlKey:
    """A header that the server asks for, by its name for HTTP."""

    value: str = field(repr=False)
    header: str = HEADER

    @property
    def line(self) -> str:
        return f"{self.header}: {self.value}"

    @property
    def headers(self) -> dict[str, str]:
        return {self.header: self.value}

    @property
    def grpc_headers(self) -> dict[str, str]:
        return {f"{GRPC_PREFIX}{self.header}": self.value}


def new() -> ControlKey:
    return ControlKey(secrets.token_hex(KEY_BYTES))


def default_log(http_port: int) -> Path:
    """Of a server that was not told where to log."""
    return ROOT / "logs" / f"tritonserver-{http_port}.log"


def file_beside(log: Path) -> Path:
    return log.with_name(f"{log.name}.key")


def flags(key: ControlKey, given: Sequence[str]) -> list[str]:
    """tritonserver's options. An API that those `given` by a person restrict already keeps that person's key."""
    found = []
    for flag in (HTTP_FLAG, GRPC_FLAG):
        theirs = {api for value in flag_values(given, flag) for api in value.partition(":")[0].split(",")}
        if ours := [api for api in APIS if api not in theirs]:
            found.append(f"{flag}={','.join(ours)}:{key.header}={key.value}")
    return found


def for_repository(key: ControlKey | None, given: Sequence[str]) -> ControlKey | None:
    """What opens the repository over HTTP: a person's own key where one was given for that, else `key`."""
    for value in flag_values(given, HTTP_FLAG):
        apis, _, header = value.partition(":")
        if APIS[0] in apis.split(","):
            name, _, secret = header.partition("=")
            return ControlKey(secret, name)
    return key


@contextmanager
def kept(key: ControlKey | None, file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """The key is in `file`, readable by this user alone, as long as the block lasts. Without a key there is no file."""
    if key is None:
        _remove(file)  # an earlier server's
        yield
        return
    try:
        _write(file, key)
    except OSError as error:
        say(f"the control key is not kept, so only this process can load models again: {file}: {error.strerror}")
    try:
        yield
    finally:
        with suppress(OSError):
            if read(file) == key:  # not that of a server that took this one's place
                _remove(file)


def read(file: Path) -> ControlKey:
    """Raises OSError; ValueError for what is no header."""
    name, colon, value = file.read_text().strip().partition(": ")
    if not colon:
        raise ValueError(f"{file} holds no control key")
    return ControlKey(value, name)


def _write(file: Path, key: ControlKey) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    _remove(draft)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(f"{key.line}\n")
    draft.replace(file)


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def print_key(arguments: Sequence[str]) -> int:
    """scripts/serve --print-key [--http-port N | --log FILE]; 0, or 1 where there is no key to be read."""
    parser = argparse.ArgumentParser(prog="scripts/serve --print-key", allow_abbrev=False)
    parser.add_argument("target", nargs="?", choices=("cpu", "gpu"), help=argparse.SUPPRESS)
    parser.add_argument("--print-key", action="store_true", help="print the header that opens a running server's doors")
    parser.add_argument("--http-port", type=int, default=8000, metavar="N", help="8000")
    parser.add_argument("--log", type=Path, metavar="FILE", help="the log, where it is elsewhere")
    options = parser.parse_args(arguments)
    file = file_beside(options.log or default_log(options.http_port))
    try:
        print(read(file).line)
    except OSError as error:
        print(f"error: {file}: {error.strerror}; --http-port or --log tell which server is meant", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
