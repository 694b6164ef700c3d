"""Which grammars may go to the engine's worker: each unknown one is compiled in a process apart first.

What that process said, or that it died of it, is kept by content. One grammar at a time; a few may wait.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Protocol

from bls.errors import BadRequest, Busy, RouterError
from engines.triton.grammars import Decided
from engines.worker.generation import Guide
from engines.worker.grammar_process import MAX_BYTES, Verdict

log = logging.getLogger(__name__)

MAX_WAITING = 8
_MAX_VERDICTS = 4096
_LOAD_SECONDS = 60.0
_WALL_PER_CPU = 10.0  # A busy machine gives a process that is nice its CPU time so much later.
_IDLE_SECONDS = 600.0  # Then the process ends: it holds some 150 MB.
_CPU_SIGNALS = (signal.SIGPROF, signal.SIGXCPU)


class TooMuch(BadRequest):
    """It takes more CPU time than it was given."""


class Process(Protocol):
    """A running engines/worker/grammar_process.py."""

    connection: Connection

    def end(self) -> int:
        """Ends it by force; the exit code, minus a signal's number."""

    def interrupt(self) -> None:
        """The same for another thread than the one that reads from it, which then sees its end."""


class GrammarGate:
    """`decided` is called from the gate's thread with each verdict that was asked for: None, or what is wrong."""

    def __init__(
        self,
        launch: Callable[[], Process],
        cpu_seconds: float,
        decided: Decided,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._launch = launch
        self._cpu_seconds = cpu_seconds
        self._decided = decided
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._verdicts: OrderedDict[str, RouterError | None] = OrderedDict()
        self._asked: dict[str, Guide] = {}
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: Process | None = None
        self._thread: threading.Thread | None = None
        self._closing = False

    def admits(self, guide: Guide) -> bool:
        """False while nobody knows: ask. Raises BadRequest for one that is wrong or too much."""
        key = _key(guide)
        with self._lock:
            if key not in self._verdicts:
                return False
            self._verdicts.move_to_end(key)
            error = self._verdicts[key]
        if error is not None:
            raise error
        return True

    def ask(self, guide: Guide) -> None:
        """Has an unknown grammar tried out. Raises Busy where too many wait for that."""
        key = _key(guide)
        with self._lock:
            if key in self._asked:
                return
            if len(self._asked) >= MAX_WAITING:
                raise Busy(f"{MAX_WAITING} grammars are waiting to be compiled")
            self._asked[key] = guide
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="grammars", daemon=True)
                self._thread.start()
        self._waiting.put(key)

    def close(self) -> None:
        """Ends the process; what waits gets no verdict any more."""
        with self._lock:
            thread, process = self._thread, self._process
            self._closing = True
        if thread is None:
            return
        self._waiting.put(None)
        if process is not None:
            process.interrupt()
        thread.join()

    def _run(self) -> None:
        while True:
            try:
                key = self._waiting.get(timeout=self._idle_seconds if self._process else None)
            except queue.Empty:
                self._end_process()
                continue
            if key is None:
                self._end_process()
                return
            if not self._closing:
                self._judge(key)

    def _judge(self, key: str) -> None:
        guide = self._asked[key]
        error: RouterError | None
        try:
            error = self._try(guide)
        except Exception:  # No process to be had: the grammar may be fine, and the caller may come again.
            log.exception("trying a grammar out")
            self._end_process()
            error = Busy("grammars can't be compiled at the moment")
        with self._lock:
            if not isinstance(error, Busy):
                self._verdicts[key] = error
            del self._asked[key]
            while len(self._verdicts) > _MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        self._decided(guide, error)

    def _try(self, guide: Guide) -> RouterError | None:
        process = self._loaded()
        try:
            process.connection.send(guide)
            until = time.monotonic() + _WALL_PER_CPU * self._cpu_seconds
            if process.connection.poll(until - time.monotonic()):
                verdict: Verdict = process.connection.recv()
                return BadRequest(verdict.reason) if verdict.reason else None
        except (EOFError, OSError):
            return self._exceeded(guide, self._end_process())
        self._end_process()
        return Busy("the machine is too busy to compile the grammar")

    def _loaded(self) -> Process:
        """A process that waits for a grammar. One that has ended by itself, or was never there, is started."""
        if self._process is not None and self._process.connection.poll():  # Nothing was asked: it is the end.
            self._end_process()
        if self._process is None:
            process = self._launch()
            with self._lock:
                self._process = process
            if not process.connection.poll(_LOAD_SECONDS):
                raise TimeoutError(f"the grammars' process did not load in {_LOAD_SECONDS:g} s")
            process.connection.recv()
        assert self._process is not None
        return self._process

    def _end_process(self) -> int:
        with self._lock:
            process, self._process = self._process, None
        return process.end() if process is not None else 0

    def _exceeded(self, guide: Guide, exit_code: int) -> BadRequest:
        seconds, mebibytes = f"{self._cpu_seconds:g} s of CPU time", f"{MAX_BYTES // 2**20} MiB"
        log.warning("a grammar of %d bytes is too much: its trial ended with %d", len(guide.text), exit_code)
        if -exit_code in _CPU_SIGNALS:
            return TooMuch(f"guided_decoding_guide takes more than {seconds} to compile (max_grammar_cpu_ms)")
        return BadRequest(f"guided_decoding_guide can't be compiled within {seconds} and {mebibytes}")


def _key(guide: Guide) -> str:
    return hashlib.sha256(f"{guide.kind}\0{guide.text}".encode("utf-8", "surrogatepass")).hexdigest()
