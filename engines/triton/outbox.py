"""Sends commands to a worker from a thread of its own: a frozen worker reads nothing, and must hold up nobody."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

_SECONDS_TO_END = 1.0


class Outbox:
    """The commands arrive in the order of `put`, which never waits. What a dead worker doesn't take is lost."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="commands", daemon=True)
        self._thread.start()

    def put(self, command: Any) -> None:
        self._commands.put(command)

    def close(self) -> bool:
        """Whether it has ended; not while the worker is there and doesn't read."""
        self._commands.put(None)
        self._thread.join(_SECONDS_TO_END)
        return not self._thread.is_alive()

    def _send(self) -> None:
        # If the worker is gone, who reads its news sees their end and fails every stream.
        with suppress(OSError):
            while (command := self._commands.get()) is not None:
                self._connection.send(command)
