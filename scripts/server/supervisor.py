"""Keeps one endpoint served: shows how the first server loads, minds it and those that follow it, drains the last."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from engines.remote.names import DRAINING
from scripts.host.interruption import stop_signals
from scripts.host.progress import Progress
from scripts.server import control_key, metrics_relay, readiness, spare_models
from scripts.server.generation import Generation, MakeServer, MakeStart
from scripts.server.lame_duck import Front, LameDuck, NoFront
from scripts.server.readiness_server import ReadinessServer
from scripts.server.succession import START_ATTEMPTS, Succession
from scripts.server.succession_options import Plan
from scripts.server.tritonserver import Settings, shown

STOPPED, LOAD_FAILED, DIED, CUT_OFF = 0, 3, 4, 6  # exit statuses, explained in scripts/serve.py
REPLACE_SIGNAL = signal.SIGUSR1
TICK_S = 0.25
DRAIN_TICK_S = 0.1  # between two looks whether all is answered: several in a row must say so
LOG_S = 2.0  # until a server that is ready must have said so of each model; on a full disk it says nothing


class Supervisor:
    """Runs servers until it is asked to stop. `run` returns the exit status."""

    def __init__(
        self,
        settings: Settings,
        make_start: MakeStart,
        make_server: MakeServer,
        progress: Progress,
        summary: str,
        ready_file: Path | None,
        plan: Plan,
    ) -> None:
        self.settings = settings
        self._make_start = make_start
        self._make_server = make_server
        self._progress = progress
        self._summary = summary
        self._ready_file = ready_file
        self._front: Front = NoFront()
        self._plan = plan
        self._started = self._aborted_loads = 0  # the latter in a row, up to now
        self._last: Generation | None = None
        # From here on signals wait until they are asked for, so none is lost and none interrupts the clean-up.
        self._stop_signals = stop_signals()
        self._signals = (*self._stop_signals, signal.SIGCHLD, REPLACE_SIGNAL)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        self._servers = Succession(settings, plan, self._start, progress.say, self._write_ready_file)
        self._readiness = ReadinessServer(
            lambda: readiness.ask(settings.local_host, settings.http_port, self.settings.models),
            self._processes,
            self._servers.care,
        )

    def put_behind(self, front: Front) -> None:
        """`front` gets the requests first: it ends before the server does."""
        self._front = front
        self._readiness.front_drains = front.drains

    def run(self) -> int:
        with ExitStack() as stack:
            stack.callback(self._clean_up)
            host = self.settings.pages_host or self.settings.host
            if self.settings.ready_port is not None:
                stack.enter_context(self._readiness.listening(host, self.settings.ready_port))
            if self.settings.serves_metrics:
                stack.enter_context(metrics_relay.listening(host, self.settings.metrics_port, self._metrics))
            status = self._load()
            return self._serve() if status is None else status

    def _start(self) -> Generation:
        """Without the models that kept the last one from being ready, where none serves; after a row of servers that
        were aborted while they loaded with as little at a time as can be."""
        failed = self._last.spare_failure if self._last else None
        if failed and not self._servers.active:
            self.settings = spare_models.without(self.settings, failed)
            self._progress.say(f"warning: {failed}; starting again without {self.settings.left_out.partition(':')[0]}")
        self._started += 1
        was_aborted = self._last is not None and self._last.failure and self._last.was_aborted
        self._aborted_loads = self._aborted_loads + 1 if was_aborted else 0
        settings = replace(self.settings, one_by_one=self._aborted_loads >= START_ATTEMPTS - 1)
        self._last = Generation(self._started, settings, self._make_start, self._make_server, self._progress.say)
        return self._last

    def _load(self) -> int | None:
        """Waits until every model of the first server is ready; an exit status if that won't be.

        Raises SpareModelFailed.
        """
        self._progress.step("loading")
        for attempt in range(1, START_ATTEMPTS + 1):
            first = self._servers.following = self._start()
            if self._is_stopped_while_loading(first):
                self._progress.say("stopped")
                return STOPPED
            if not first.failure:
                models = set(self.settings.models)
                self._progress.done(f"{len(models - first.failed)} of {len(models)} models ready")
                _print(self._summary)
                self._servers.serve(first)
                return None
            if first.spare_failure:
                raise first.spare_failure
            again = first.was_aborted and self._plan.restarts and attempt < START_ATTEMPTS
            if not first.failed:  # a model's failure was said
                self._progress.say(f"error: {first.failure}{'; starting it again' if again else ''}")
            if not again:
                break
            first.clean_up()
        self._progress.say(f"all of it: {shown(first.settings.log)}")
        return LOAD_FAILED

    def _is_stopped_while_loading(self, first: Generation) -> bool:
        """Returns once the server is ready, failed or is to stop."""
        while not first.is_ready():
            first.look()
            self._progress.status(first.loading_status())
            if first.failure:
                return False
            if self._signal() in self._stop_signals:
                return True
        end = time.monotonic() + LOG_S
        while first.waiting and not first.failure and time.monotonic() < end:
            first.look()
            time.sleep(0.05)
        first.look()
        return False

    def _serve(self) -> int:
        while True:
            received = self._signal()
            if received in self._stop_signals:
                return self._drain()
            if received == REPLACE_SIGNAL:
                self._servers.replace()
            if not self._servers.mind():
                return DIED

    def _drain(self) -> int:
        self._progress.step("stopping")
        self._readiness.is_stopping = True
        duck = LameDuck(self._servers.settle(), self._front, self.settings.lame_duck_s, self.settings.drain_s)
        is_cut_off = not self._is_empty(duck)
        drains = self._servers.stop(duck.left_s)
        for drain in drains if is_cut_off else ():
            drain.cut_off()
        while left := [drain for drain in drains if not drain.look()]:
            doing = left[-1].generation.stopping_status
            self._progress.status(f"{doing}; at most {self.settings.drain_s} s, once more stops at once")
            if self._signal(DRAIN_TICK_S) in self._stop_signals:
                for drain in left:
                    drain.cut_off()
        clean = all(drain.has_ended_well for drain in drains) and not self._front.has_cut_off
        self._progress.done("stopped" if clean else "stopped; what was still in flight was cut off")
        return STOPPED if clean else CUT_OFF

    def _is_empty(self, duck: LameDuck) -> bool:
        """Waits for requests in flight, as long as they may take; False where a second signal ends that."""
        while not duck.look():
            self._progress.status(f"{duck.status}; at most {duck.left_s:.0f} s, once more stops at once")
            if self._signal(DRAIN_TICK_S) in self._stop_signals:
                self._front.end()
                return False
        return True

    def _clean_up(self) -> None:
        if self._ready_file:
            self._ready_file.unlink(missing_ok=True)
        self._servers.clean_up()

    def _processes(self) -> dict[str, int]:
        active = self._servers.active
        return dict(active.server.count_stubs(fresh=False)) if active else {}

    def _metrics(self) -> str:
        """Of the server that serves, and of the last one while it ends; and whether it is about to, for routers whose
        engine it is (engines/remote)."""
        active = self._servers.active
        ending = [drain.generation for drain in self._servers.drains]
        page = next((page for each in [active, *ending] if each and (page := each.metrics())), "")
        return page and f"{page}# TYPE {DRAINING} gauge\n{DRAINING} {int(self._readiness.is_stopping)}\n"

    def _write_ready_file(self, generation: Generation) -> None:
        if not self._ready_file:
            return
        settings = self.settings
        state = {
            "http_url": f"http://{settings.address(settings.http_port)}",
            "grpc_url": settings.address(settings.grpc_port),
            "metrics_url": f"http://{settings.address(settings.metrics_port)}/metrics",
            "supervisor_pid": os.getpid(),
            "server_pid": generation.server.pid,
            "log": str(generation.settings.log),
            "repository": str(settings.repository),
            "left_out": settings.left_out,
            "control_key_file": str(control_key.file_beside(settings.log)) if settings.control_key else None,
        }
        try:
            _write_at_once(self._ready_file, json.dumps(state))
        except OSError as error:
            self._progress.say(f"warning: cannot write {shown(self._ready_file)}: {error.strerror}")

    def _signal(self, tick_s: float = TICK_S) -> int | None:
        """The next signal that asks for something, SIGCHLD included; None after a tick."""
        received = signal.sigtimedwait(self._signals, tick_s)
        return received.si_signo if received else None


def _print(text: str) -> None:
    with suppress(OSError):  # whoever read it is gone
        print(text, flush=True)


def _write_at_once(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
