"""Stays with one tritonserver: shows how it loads, passes on what goes wrong, drains it, leaves nothing of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from scripts.host.interruption import stop_signals
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.server import control_key, idle_connections, readiness, spare_models
from scripts.server.model_control import ModelControl
from scripts.server.readiness_server import ReadinessServer
from scripts.server.restarts import Repairs
from scripts.server.server_log import Event, Failed, Loaded, ServerLog, Stopping, Trouble
from scripts.server.tritonserver import Settings, Start, TritonServer, shown

STOPPED, LOAD_FAILED, DIED, CUT_OFF = 0, 3, 4, 6  # exit statuses, explained in scripts/serve.py
LOG_BYTES = 256 << 20  # of one log; as much again lies in <name>.1
UNLOAD_S = 15  # what tritonserver may take beyond the drain before it is killed


class Supervisor:
    """Runs one server from its start to its end. `run` returns the exit status."""

    def __init__(
        self,
        settings: Settings,
        start: Start,
        make_server: Callable[[Settings, Start], TritonServer],
        progress: Progress,
        summary: str,
        ready_file: Path | None,
    ) -> None:
        self.settings = settings
        self._progress = progress
        self._summary = summary
        self._ready_file = ready_file
        for log in (settings.log, *start.rank_logs):
            _make_fresh(log)
        self._log = ServerLog(settings.log)
        self._rank_logs = {rank: ServerLog(log) for rank, log in enumerate(start.rank_logs, start=1)}
        # From here on signals wait until they are asked for, so none is lost and none interrupts the clean-up.
        self._stop_signals = stop_signals()
        signal.pthread_sigmask(signal.SIG_BLOCK, (*self._stop_signals, signal.SIGCHLD))
        self._server = make_server(settings, start)
        self._readiness = ReadinessServer(
            lambda: readiness.ask(settings.local_host, settings.http_port, settings.models),
            lambda: self._server.count_stubs(fresh=False),
        )

    def run(self) -> int:
        try:
            with self._answering_probes():
                status = self._load()
                return self._serve() if status is None else status
        finally:
            if self._ready_file:
                self._ready_file.unlink(missing_ok=True)
            self._server.clean_up()

    def _answering_probes(self) -> AbstractContextManager[object]:
        port = self.settings.ready_port
        return nullcontext() if port is None else self._readiness.listening(self.settings.host, port)

    def _load(self) -> int | None:
        """Waits until every model is ready; an exit status if that won't be. Raises SpareModelFailed."""
        waiting, tolerant = set(self.settings.models), self.settings.tolerates_failed_models
        troubles: dict[str, str] = {}  # the last one of each log
        failed: set[str] = set()
        self._progress.step("loading")
        while waiting or not self._server.is_ready():
            has_ended = self._server.exit_status() is not None  # before its last words are read
            for where, event in self._events():
                if isinstance(event, Failed) and event.model not in failed:  # the log says it in several lines
                    failed.add(event.model)
                    spare_models.check(self.settings, event)
                    self._say(f"error: model {event.model} failed to load{where}: {event.reason}")
                    if where or not tolerant:  # without one of its ranks an engine is never ready
                        return self._give_up(LOAD_FAILED)
                if isinstance(event, Loaded | Failed) and not where:
                    waiting.discard(event.model)
                elif isinstance(event, Trouble):
                    troubles[where] = f"{event.text}{where}"
            self._progress.status(self._loading_status(waiting))
            if has_ended:
                why = ": " + "; ".join(troubles.values()) if troubles else ""
                self._say(f"error: tritonserver ended while loading, {self._server.ending()}{why}")
                return self._give_up(LOAD_FAILED)
            if self._signal(0.2) in self._stop_signals:
                self._progress.say("stopped")
                return STOPPED
        models = set(self.settings.models)
        self._progress.done(f"{len(models - failed)} of {len(models)} models ready")
        return None

    def _loading_status(self, waiting: set[str]) -> str:
        total = len(self.settings.models)
        left = f", waiting for {', '.join(sorted(waiting))}" if waiting else ", starting the endpoints"
        return f"{total - len(waiting)} of {total} models{left}"

    def _give_up(self, status: int) -> int:
        self._say(f"all of it: {shown(self.settings.log)}")
        return status

    def _serve(self) -> int:
        repairs = self._repairs()  # counts the processes, before one can be killed by who reads the ready file
        _print(self._summary)
        if self._ready_file:
            _write_at_once(self._ready_file, json.dumps(self._state()))
        while True:
            received = self._signal(1.0)
            has_ended = self._server.exit_status() is not None
            for where, event in self._events():
                if isinstance(event, Failed):
                    self._say(f"model {event.model} failed to load{where}: {event.reason}")
                elif isinstance(event, Trouble):
                    self._say(f"tritonserver{where}: {event.text}")
            for log in (self._log, *self._rank_logs.values()):
                log.keep_below(LOG_BYTES)
            if has_ended:
                self._say(f"error: tritonserver died: {self._server.ending()}")
                return self._give_up(DIED)
            if received in self._stop_signals:
                if repairs:
                    repairs.stop()
                return self._drain()
            if repairs:
                for line in repairs.look():
                    self._say(line)
                if repairs.gave_up:
                    self._say(f"error: model {repairs.gave_up} lost a process and cannot be loaded again")
                    return self._give_up(DIED)

    def _events(self) -> list[tuple[str, Event]]:
        """What the logs say, and where that isn't the first rank's: " on rank 2"."""
        found = [("", event) for event in self._log.events()]
        for rank, log in self._rank_logs.items():
            found += [(f" on rank {rank}", event) for event in log.events()]
        return found

    def _repairs(self) -> Repairs | None:
        settings = self.settings
        if not settings.loads_explicitly:
            return None
        key = control_key.for_repository(settings.control_key, settings.extra)
        control = ModelControl(settings.local_host, settings.http_port, key)
        return Repairs(control, self._server.count_stubs, settings.drain_s + UNLOAD_S)

    def _drain(self) -> int:
        self._progress.step("stopping")
        self._readiness.is_stopping = True
        self._server.stop()
        end, doing = time.monotonic() + self.settings.drain_s + UNLOAD_S, "requests in flight"
        while self._server.exit_status() is None:
            for event in self._log.events():
                doing = _stopping_status(event) or doing
            self._progress.status(f"{doing}; at most {self.settings.drain_s} s, once more stops at once")
            idle_connections.close_idle(self._server.pid, self.settings.http_port)
            if self._server.has_answered_all():
                self._server.kill()
                self._progress.done("stopped")
                return STOPPED
            if self._signal(0.5) in self._stop_signals or time.monotonic() > end:
                self._server.kill()
        clean = self._server.has_ended_well()
        self._progress.done("stopped" if clean else "stopped; what was still in flight was cut off")
        return STOPPED if clean else CUT_OFF

    def _state(self) -> dict[str, object]:
        settings = self.settings
        return {
            "http_url": f"http://{settings.address(settings.http_port)}",
            "grpc_url": settings.address(settings.grpc_port),
            "metrics_url": f"http://{settings.address(settings.metrics_port)}/metrics",
            "supervisor_pid": os.getpid(),
            "server_pid": self._server.pid,
            "log": str(settings.log),
            "repository": str(settings.repository),
            "left_out": settings.left_out,
            "control_key_file": str(control_key.file_beside(settings.log)) if settings.control_key else None,
        }

    def _say(self, text: str) -> None:
        self._progress.say(text)

    def _signal(self, timeout_s: float) -> int | None:
        """The next signal that asks for something, SIGCHLD included; None after `timeout_s`."""
        received = signal.sigtimedwait((*self._stop_signals, signal.SIGCHLD), timeout_s)
        return received.si_signo if received else None


def _make_fresh(log: Path) -> None:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.is_file():
            log.replace(log.with_name(log.name + ".1"))
        log.touch()
    except OSError as error:
        raise Refused(f"cannot write {shown(log)}: {error.strerror}; --log names another file") from None


def _stopping_status(event: Event) -> str | None:
    if not isinstance(event, Stopping):
        return None
    if event.connections:
        return f"HTTP connections still open: {event.connections}"
    return f"models still loaded: {event.live_models}" if event.live_models else None


def _print(text: str) -> None:
    with suppress(OSError):  # whoever read it is gone
        print(text, flush=True)


def _write_at_once(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
