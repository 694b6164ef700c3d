"""One tritonserver's life under scripts/serve: it loads, serves, is cared for, and ends. Others may live beside it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from scripts.host.preflight import Refused
from scripts.server import canary, control_key, idle_connections, metrics_relay, server_sockets, spare_models, steering
from scripts.server.canary import Canary
from scripts.server.model_control import ModelControl
from scripts.server.old_processes import OldProcesses
from scripts.server.restarts import Repairs
from scripts.server.server_log import Event, Failed, Loaded, ServerLog, Stopping, Trouble
from scripts.server.spare_models import SpareModelFailed
from scripts.server.tritonserver import Settings, Start, TritonServer, shown
from scripts.server.waker import Waker

LOG_BYTES = 256 << 20  # of one log; as much again lies in <name>.1
LOGS_KEPT = 5  # of earlier servers of one scripts/serve

MakeStart = Callable[[Settings], Start]
MakeServer = Callable[[Settings, Start], TritonServer]


class Generation:
    """Started at once. `look` often; `failure` says why it will never be ready."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        make_start: MakeStart,
        make_server: MakeServer,
        say: Callable[[str], None],
    ) -> None:
        self.number = number
        self.settings = _own(settings, number)
        self.waiting = set(settings.models)
        self.failed: set[str] = set()
        self.failure = ""
        self.spare_failure: SpareModelFailed | None = None  # where it failed, but would not without these models
        self.is_serving = False
        self.repairs: Repairs | None = None
        self._say = say
        self._troubles: dict[str, str] = {}  # the last one of each log
        self._was_disk_full = False
        start = make_start(self.settings)
        for log in (self.settings.log, *start.rank_logs):
            _make_fresh(log)
        self._log = ServerLog(self.settings.log)
        self._rank_logs = {rank: ServerLog(log) for rank, log in enumerate(start.rank_logs, start=1)}
        self.server = make_server(self.settings, start)
        self.canary = Canary(canary.probes(self.settings), self.metrics, canary.liveness(self.settings))
        self._waker = Waker(self.server.pid)
        self.stopping_status = "requests in flight"

    def look(self) -> None:
        """Reads what the server has written since the last look, and says what a person should know."""
        has_ended = self.has_ended  # before its last words are read
        self._look_at_disk()
        for where, event in self._events():
            self._note(where, event)
        for log in (self._log, *self._rank_logs.values()):
            log.keep_below(LOG_BYTES)
        if has_ended and not self.is_serving and not self.failure:
            why = ": " + "; ".join(self._troubles.values()) if self._troubles else ""
            self.failure = f"tritonserver ended while loading, {self.server.ending()}{why}"

    def _look_at_disk(self) -> None:
        is_full = self._log.is_disk_full()
        if is_full and not self._was_disk_full:
            self._say(f"warning: the disk is full, so the log can't be written: {shown(self.settings.log)}")
        self._was_disk_full = is_full

    @property
    def has_ended(self) -> bool:
        return self.server.exit_status() is not None

    @property
    def was_aborted(self) -> bool:
        """Whether a signal ended it, which no setting does: the next start may well succeed."""
        status = self.server.exit_status()
        return status is not None and status < 0

    def is_ready(self) -> bool:
        """Whether it answers, where no other server has its ports."""
        return self.server.is_ready()

    def is_listening(self) -> bool:
        """The same where another server has the ports too: it listens once every model is loaded."""
        return all(steering.count(self.server.pid, port) for port in self.settings.ports)

    def serve(self) -> None:
        """It is the one that clients get from now on."""
        self.is_serving = True
        if self.settings.loads_explicitly:
            key = control_key.for_repository(self.settings.control_key, self.settings.extra)
            settings = self.settings
            control = ModelControl(settings.local_host, settings.http_port, key, settings.plain_grpc_port)
            old_routers = OldProcesses(self.server.idle_routers)
            self.repairs = Repairs(control, self.server.stubs, self.server.instance, old_routers)
        self.canary.start()

    def care(self) -> None:
        """Has processes that died replaced, and a server that somebody stopped go on."""
        if self._waker.look():
            self._say("tritonserver was stopped by a signal (SIGSTOP): it is told to go on")
        if not self.repairs:
            return
        for line in self.repairs.look():
            self._say(line)
        if self.repairs.has_lost:
            self.canary.alarm()

    def leave(self) -> None:
        """Nothing of it is repaired or asked any more: it is about to end."""
        self.canary.stop()
        if self.repairs:
            self.repairs.stop()

    def turn_away(self) -> None:
        """It gets no new gRPC connections."""
        if self.settings.grpc_port in self.settings.ports:
            server_sockets.stop_listening(self.server.pid, self.settings.grpc_port)

    def kill(self) -> None:
        self.leave()
        self.server.kill()

    def clean_up(self) -> None:
        self.leave()
        self.server.clean_up()

    def close_idle_connections(self, quiet_ms: int | None = None) -> None:
        idle_connections.close_idle(self.server.pid, self.settings.http_port, quiet_ms)

    def metrics(self) -> str:
        return metrics_relay.read(self.settings.metrics_port) if self.settings.serves_metrics else ""

    def loading_status(self) -> str:
        total = len(self.settings.models)
        left = f", waiting for {', '.join(sorted(self.waiting))}" if self.waiting else ", starting the endpoints"
        return f"{total - len(self.waiting)} of {total} models{left}"

    def _note(self, where: str, event: Event) -> None:
        if isinstance(event, Loaded) and not where:
            self.waiting.discard(event.model)
        elif isinstance(event, Failed):
            self._note_failed(where, event)
        elif isinstance(event, Stopping):
            self.stopping_status = event.status or self.stopping_status
        elif isinstance(event, Trouble):
            self._troubles[where] = f"{event.text}{where}"
            if self.is_serving:
                self._say(f"tritonserver{where}: {event.text}")

    def _note_failed(self, where: str, event: Failed) -> None:
        said = f"model {event.model} failed to load{where}: {event.reason}"
        if self.is_serving:
            self._say(said)
        elif event.model not in self.failed:  # the log says it in several lines
            self.failed.add(event.model)
            try:
                spare_models.check(self.settings, event)
                self._say(f"error: {said}")
            except SpareModelFailed as failed:
                self.spare_failure = failed
            if where or not self.settings.tolerates_failed_models:  # without one of its ranks an engine is never ready
                self.failure = said
        if not where:
            self.waiting.discard(event.model)

    def _events(self) -> list[tuple[str, Event]]:
        """What the logs say, and where that isn't the first rank's: " on rank 2"."""
        found = [("", event) for event in self._log.events()]
        for rank, log in self._rank_logs.items():
            found += [(f" on rank {rank}", event) for event in log.events()]
        return found


def _own(settings: Settings, number: int) -> Settings:
    """What the server gets for itself: a metrics port on this machine, and a log where it isn't the first."""
    log = settings.log
    if number > 1:
        log = _numbered(log, number)
        if number > LOGS_KEPT + 1:
            with suppress(OSError):
                _numbered(settings.log, number - LOGS_KEPT).unlink(missing_ok=True)
    return replace(settings, log=log, metrics_host=metrics_relay.LOCAL, metrics_port=_free_port())


def _numbered(log: Path, number: int) -> Path:
    return log.with_name(f"{log.stem}.{number}{log.suffix}")


def _free_port() -> int:
    with socket.create_server((metrics_relay.LOCAL, 0)) as listener:
        return int(listener.getsockname()[1])


def _make_fresh(log: Path) -> None:
    """Raises Refused where it can't be written."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.is_file():
            log.replace(log.with_name(log.name + ".1"))
        log.touch()
    except OSError as error:
        raise Refused(f"cannot write {shown(log)}: {error.strerror}; --log names another file") from None
