"""The process that tries grammars out before an engine's worker has to compile them, within limits of CPU and memory.

It dies of a grammar that is too much, and another one is started: the library can't be interrupted. Ends when the other
side closes the socket.
"""

from __future__ import annotations

import importlib
import logging
import os
import resource
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from bls import manifest
from bls.errors import BadRequest
from engines.worker.generation import Guide
from engines.worker.parameters import EngineParameters

MAX_BYTES = 512 * 2**20  # On top of what the process holds once it is loaded.
_MAX_KEPT_BYTES = 256 * 2**20  # The library keeps what it compiled: beyond that the process ends, between two grammars.
_OUT_OF_MEMORY = 5
# The timer counts all threads. The kernel's own limit counts whole seconds, and is there in case the timer is not.
_BACKSTOP_SECONDS = 5


@dataclass(frozen=True)
class GrammarStart:
    """The first message in. `trial` is "module:class", made of a manifest and parameters; see Trial."""

    trial: str
    folder: Path
    parameters: EngineParameters
    niceness: int = 10  # Nobody's tokens wait for a grammar.


class Trial(Protocol):
    """A library's compiler."""

    def check(self, guide: Guide) -> None:
        """Compiles a grammar as the worker will. Raises BadRequest with what is wrong in it."""


@dataclass(frozen=True)
class Loaded:
    """The answer to the start."""


@dataclass(frozen=True)
class Verdict:
    """The answer to a Guide; `reason` is "" for one that is fine."""

    reason: str


def main(descriptor: int) -> int:
    connection = Connection(descriptor)
    start: GrammarStart = connection.recv()
    os.nice(start.niceness)
    module, _, name = start.trial.partition(":")
    trial: Trial = getattr(importlib.import_module(module), name)(manifest.load(start.folder), start.parameters)
    connection.send(Loaded())
    return serve(connection, trial, start.parameters.max_grammar_cpu_ms / 1000)


def serve(connection: Connection, trial: Trial, cpu_seconds: float) -> int:
    """Answers one guide after the other. Each may use so much CPU time; more ends the process by SIGPROF."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    at_first = _bytes(1)
    try:
        while True:
            guide: Guide = connection.recv()
            with _Limits(cpu_seconds):
                verdict = _try(trial, guide)
            connection.send(verdict)
            if _bytes(1) - at_first > _MAX_KEPT_BYTES:
                return 0
    except (EOFError, OSError):
        return 0


def _try(trial: Trial, guide: Guide) -> Verdict:
    try:
        trial.check(guide)
    except BadRequest as error:
        return Verdict(error.reason)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)  # What the library holds now is of no use.
    return Verdict("")


class _Limits:
    """Of this process while it tries one grammar."""

    def __init__(self, cpu_seconds: float) -> None:
        self._cpu_seconds = cpu_seconds

    def __enter__(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        whole_seconds = int(used.ru_utime + used.ru_stime + self._cpu_seconds) + _BACKSTOP_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (whole_seconds, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (_bytes(0) + MAX_BYTES, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _bytes(column: int) -> int:
    """The address space of this process (0), or what of it is resident (1)."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    # Under its own name, so that messages are of the same classes on both sides.
    from engines.worker import grammar_process

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    sys.exit(grammar_process.main(int(sys.argv[1])))
