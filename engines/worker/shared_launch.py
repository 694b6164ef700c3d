"""Starts the process of engines/worker/shared_worker.py, or joins the one that another instance has started.

They find each other by a name in Linux's abstract socket namespace: it leaves no file behind, and is free again as soon
as the process has ended.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection

from bls import manifest
from bls.errors import EngineFailed
from bls.paths import ROOT
from engines.worker import process_tree
from engines.worker.worker import Left, Start

_SECONDS_TO_JOIN = (
    60  # As long as an engine that is ending, or another instance that is starting one, may be in the way.
)
_SECONDS_BETWEEN_ATTEMPTS = 0.05
_SECONDS_TO_END = 10  # A step may be that long on a busy machine.
_outlived: list[subprocess.Popen[bytes]] = []  # What was started here and goes on for others: not to be waited for.
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def is_ours(peer: socket.socket) -> bool:
    """Whether the other side runs as this user: its messages are unpickled, so nobody else may send any."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(packed)
    return bool(uid == os.geteuid())


class SharedWorker:
    """One process for all that give the same `scope` and `start` while the model's files are the same.

    `connection` ends with EOFError when the process has ended. The process ends when its last connection is closed.
    """

    def __init__(self, start: Start, scope: str) -> None:
        self._address = _address(start, scope)
        self._process: subprocess.Popen[bytes] | None = None
        self.connection = self._connect(start)

    def close(self) -> int | None:
        """The exit code, if the process was started here and has ended: it may live on for the others.

        By force, if it doesn't say which: then it is stuck, for the others too.
        """
        others_use_it = self._leave()
        self.connection.close()
        if self._process is None:
            return None
        if others_use_it:
            _outlived.append(self._process)
            return None
        try:
            return self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process_tree.kill_below(self._process.pid)
            self._process.kill()
            return self._process.wait()

    def _leave(self) -> bool:
        """Whether the process goes on for others."""
        end = time.monotonic() + _SECONDS_TO_END
        with suppress(EOFError, OSError):
            with socket.socket(fileno=os.dup(self.connection.fileno())) as ours:
                ours.shutdown(socket.SHUT_WR)
            while self.connection.poll(max(0.0, end - time.monotonic())):
                if isinstance(self.connection.recv(), Left):
                    return True
        return False

    def _connect(self, start: Start) -> Connection:
        end = time.monotonic() + _SECONDS_TO_JOIN
        while time.monotonic() < end:
            connection = self._join(start)
            if connection is not None:
                return connection
            if self._process is None:
                self._process = _launch(self._address)
            elif self._process.poll() is not None:
                raise EngineFailed(f"the engine's process ended while starting (exit code {self._process.returncode})")
            if self._process is None:
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        raise EngineFailed("the engine's process could not be joined")

    def _join(self, start: Start) -> Connection | None:
        """None where no process is, or one that is ending. Waits until a process of another instance has loaded."""
        with socket.socket(socket.AF_UNIX) as peer, suppress(ConnectionError):
            peer.connect(self._address)
            if not is_ours(peer):
                raise EngineFailed("another user's process stands where the engine's should be")
            connection = Connection(os.dup(peer.fileno()))
            connection.send(start)
            # Its end, where it comes first, is for the engine to report if the process is ours.
            if self._process is not None or peer.recv(1, socket.MSG_PEEK):
                return connection
            connection.close()
        return None


def _address(start: Start, scope: str) -> str:
    weights = manifest.load(start.folder).weights_path.stat()
    identity = (weights.st_ino, weights.st_mtime_ns, weights.st_size)
    # Containers may share the network's namespace, and with it these names, but then not the processes'.
    processes = os.readlink("/proc/self/ns/pid")
    text = repr((scope, processes, os.geteuid(), start.pipeline, str(start.folder), start.parameters, identity))
    return f"\0llm-engine-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _launch(address: str) -> subprocess.Popen[bytes] | None:
    """None if another instance is just doing the same."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:
            return None
        listener.listen()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
        return subprocess.Popen(
            [sys.executable, "-m", "engines.worker.shared_worker", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
