"""The process that computes for several others: the instances of one model share an engine, its weights and its batch.

Each client has a connection of its own, with keys of its own, and is served like the only client of worker.py.
Ends when the last client has gone.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from engines.worker.scheduler import Event, Scheduler
from engines.worker.shared_launch import is_ours
from engines.worker.worker import LOAD_FAILED, Add, Batch, Failed, Left, Ready, Start, Step, Stop, load, one_line

_SECONDS_TO_CONNECT = 30  # Who started this process connects at once, or has died.
_LONGEST_SILENCE_SECONDS = 1.0  # To a client whose requests have no news: it takes a worker for dead that says nothing.

JOINED, GONE = "joined", "gone"


class Client:
    """One connection; what is sent to a client that has gone is dropped."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.keys: dict[int, int] = {}  # Its own key -> the scheduler's.
        self._told_at = 0.0

    @property
    def waits_long(self) -> bool:
        """Whether it has requests, and has heard nothing for a while."""
        return bool(self.keys) and time.monotonic() - self._told_at >= _LONGEST_SILENCE_SECONDS

    def send(self, message: Any) -> None:
        self._told_at = time.monotonic()
        with suppress(OSError):  # The thread that reads from it will say that it has gone.
            self.connection.send(message)


Inbox = queue.SimpleQueue[tuple[Client, Any]]


class Hub:
    """One scheduler for many clients."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._clients: set[Client] = set()
        self._owners: dict[int, tuple[Client, int]] = {}
        self._keys = itertools.count()

    def serve(self, inbox: Inbox) -> int:
        """Steps while there is work, sleeps while there is none, until the last client has gone or a step fails."""
        try:
            while self._obey(inbox):
                if self._scheduler.is_busy:
                    self._tell(self._scheduler.step())
            return 0
        except Exception as error:  # The pipeline's state is unknown now: the clients start another process.
            logging.exception("step")
            self._fail(one_line(error))
            return 1

    def _obey(self, inbox: Inbox) -> bool:
        """Carries out what has come in, waiting for it if nothing else is to be done; False without a client."""
        while True:
            try:
                client, command = inbox.get(block=not self._scheduler.is_busy)
            except queue.Empty:
                return True
            if command == JOINED:
                self._clients.add(client)
                client.send(Ready(self._scheduler.statistics(), os.getpid()))
            elif command == GONE:
                self._remove(client)
                if not self._clients:
                    return False
            else:
                self._carry_out(client, command)

    def _carry_out(self, client: Client, command: Batch | Add | Stop) -> None:
        if isinstance(command, Stop):
            if command.key in client.keys:
                self._tell(self._scheduler.stop(client.keys[command.key]))
            return
        for add in command.adds if isinstance(command, Batch) else (command,):
            key = client.keys[add.key] = next(self._keys)
            self._owners[key] = (client, add.key)
            self._scheduler.add(key, add.generation)

    def _remove(self, client: Client) -> None:
        self._clients.discard(client)
        for key in client.keys.values():
            self._owners.pop(key, None)
            self._scheduler.stop(key)
        if self._clients:
            client.send(Left())
        client.connection.close()

    def _tell(self, events: Iterable[Event]) -> None:
        """To each client its own news under its own keys; to all of them the figures once nothing runs.

        One whose requests wait hears every so often that there was a step.
        """
        news: dict[Client, list[Event]] = defaultdict(list)
        for event in events:
            if event.key in self._owners:
                client, key = self._owners[event.key]
                news[client].append(Event(key, event.ids, event.log_probs, event.ended, event.error))
                if event.is_last:
                    del self._owners[event.key], client.keys[key]
        statistics = self._scheduler.statistics()
        for client in self._clients:
            if client in news or statistics.active == 0 or client.waits_long:
                client.send(Step(news[client], statistics))

    def _fail(self, reason: str) -> None:
        for client in self._clients:
            client.send(Failed(reason))


def main(descriptor: int) -> int:
    listener = socket.socket(fileno=descriptor)
    listener.settimeout(_SECONDS_TO_CONNECT)
    first = next_client(listener)
    start: Start = first.connection.recv()
    try:
        scheduler = load(start)
    except Exception as error:  # Whatever a library raises while it loads: the client has to hear of it.
        logging.exception("loading %s", start.folder)
        first.send(Failed(one_line(error)))
        return LOAD_FAILED
    listener.settimeout(None)
    inbox: Inbox = queue.SimpleQueue()
    inbox.put((first, JOINED))
    threading.Thread(target=read_commands, args=(first, inbox), daemon=True).start()
    threading.Thread(target=admit, args=(listener, inbox), daemon=True).start()
    try:
        return Hub(scheduler).serve(inbox)
    finally:
        scheduler.close()


def admit(listener: socket.socket, inbox: Inbox) -> None:
    """Takes in further clients for as long as the socket is open."""
    with suppress(OSError):
        while True:
            threading.Thread(target=welcome, args=(next_client(listener), inbox), daemon=True).start()


def next_client(listener: socket.socket) -> Client:
    """The next process of this user that connects."""
    while True:
        accepted, _ = listener.accept()
        if is_ours(accepted):
            return Client(Connection(accepted.detach()))
        accepted.close()


def welcome(client: Client, inbox: Inbox) -> None:
    """Its first message is the start, which is the same for all."""
    with suppress(EOFError, OSError):
        client.connection.recv()
        inbox.put((client, JOINED))
        read_commands(client, inbox)


def read_commands(client: Client, inbox: Inbox) -> None:
    """Passes on what the client sends, until it goes."""
    try:
        while True:
            inbox.put((client, client.connection.recv()))
    except (EOFError, OSError):
        inbox.put((client, GONE))


if __name__ == "__main__":
    # Under its own name, so that messages are of the same classes on both sides.
    from engines.worker import shared_worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    sys.exit(shared_worker.main(int(sys.argv[1])))
