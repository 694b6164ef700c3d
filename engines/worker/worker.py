"""The process that computes: commands come in by a socket, news of each step go out.

Apart from Triton's stub for two reasons: OpenVINO's step() keeps the GIL, which would stop the stub's threads for as
long; and a crash of the library ends this process alone. Ends when the other side closes the socket.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bls import manifest
from engines.worker.generation import Generation
from engines.worker.parameters import EngineParameters
from engines.worker.scheduler import Event, Scheduler, Statistics

LOAD_FAILED = 3


@dataclass(frozen=True)
class Start:
    """The first message in: what to load. `pipeline` is "module:class"."""

    pipeline: str
    folder: Path
    parameters: EngineParameters


@dataclass(frozen=True)
class Add:
    key: int
    generation: Generation


@dataclass(frozen=True)
class Batch:
    """Requests that come at once: in static batching none of them waits for the next batch."""

    adds: tuple[Add, ...]


@dataclass(frozen=True)
class Stop:
    key: int


@dataclass(frozen=True)
class Ready:
    """`pid` is the worker's, where it is a process."""

    statistics: Statistics
    pid: int = 0


@dataclass(frozen=True)
class Left:
    """The answer of a shared worker to a client that leaves while others stay."""


@dataclass(frozen=True)
class Failed:
    """The worker can't go on and ends; `reason` is one line for callers."""

    reason: str


@dataclass(frozen=True)
class Step:
    events: list[Event]
    statistics: Statistics


def main(descriptor: int) -> int:
    connection = Connection(descriptor)
    start: Start = connection.recv()
    try:
        scheduler = load(start)
    except Exception as error:  # Whatever a library raises while it loads: the parent has to hear of it.
        logging.exception("loading %s", start.folder)
        connection.send(Failed(one_line(error)))
        return LOAD_FAILED
    connection.send(Ready(scheduler.statistics(), os.getpid()))
    try:
        return serve(connection, scheduler)
    finally:
        scheduler.close()


def serve(connection: Connection, scheduler: Scheduler) -> int:
    """Steps while there is work, sleeps while there is none, until the socket is closed or a step fails."""
    commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # Always read, so that the other side never waits for a step to send a command.
    threading.Thread(target=_receive, args=(connection, commands), daemon=True).start()
    try:
        while True:
            events = _obey(scheduler, commands)
            if events is None:
                return 0
            if scheduler.is_busy:
                events += scheduler.step()
            connection.send(Step(events, scheduler.statistics()))
    except (BrokenPipeError, ConnectionResetError):
        return 0
    except Exception as error:  # The pipeline's state is unknown now: the parent starts another process.
        logging.exception("step")
        connection.send(Failed(one_line(error)))
        return 1


def _obey(scheduler: Scheduler, commands: queue.SimpleQueue[Any]) -> list[Event] | None:
    """Carries out what has come in, waiting for it if nothing else is to be done; None once the other side is gone."""
    events: list[Event] = []
    while True:
        try:
            command = commands.get(block=not scheduler.is_busy and not events)
        except queue.Empty:
            return events
        if command is None:
            return None
        if isinstance(command, Batch):
            for add in command.adds:
                scheduler.add(add.key, add.generation)
        else:
            events += scheduler.stop(command.key)


def _receive(connection: Connection, commands: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            commands.put(connection.recv())
    except (EOFError, OSError):
        commands.put(None)


def load(start: Start) -> Scheduler:
    """Imports the pipeline and loads the model; raises whatever a library raises."""
    module, _, name = start.pipeline.partition(":")
    pipeline = getattr(importlib.import_module(module), name)(manifest.load(start.folder), start.parameters)
    parameters = start.parameters
    return Scheduler(pipeline, parameters.max_batch_size, parameters.in_flight, parameters.no_evict)


def one_line(error: Exception) -> str:
    """What to tell the parent of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


if __name__ == "__main__":
    # Under its own name, so that messages are of the same classes on both sides.
    from engines.worker import worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    sys.exit(worker.main(int(sys.argv[1])))
