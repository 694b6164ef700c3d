"""Starts tritonserver on this machine and stays with it: set-up, checks, progress, drain, clean-up.

    scripts/serve cpu [--http-port N] [tritonserver flags]

Exit status: 0 stopped on request; 2 refused, nothing was started; 3 a model failed to load; 4 the server died;
5 the set-up failed; 6 stopped on request, but requests in flight were cut off; 130, 143 interrupted in the set-up.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts import environment, model_folders, preflight, shared_memory
from scripts.environment import ROOT, Environment, Interrupted, SetupFailed
from scripts.preflight import Refused
from scripts.progress import Progress
from scripts.server_log import Failed, Loaded, ServerLog
from scripts.tritonserver import Settings, TritonServer, flag_names

STOPPED, REFUSED, LOAD_FAILED, DIED, SETUP_FAILED, CUT_OFF = 0, 2, 3, 4, 5, 6
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DRAIN_S = 30
UNLOAD_S = 15  # what tritonserver may take beyond the drain before it is killed
SERVED_HERE = {
    "--http-address": "--host",
    "--grpc-address": "--host",
    "--metrics-address": "--host",
    "--log-file": "--log",
    "--model-store": "--model-repository",
}
QUESTION = "What is the capital of France?"


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """This script's options, and the rest, for tritonserver. Raises Refused, or SystemExit for argparse."""
    parser = argparse.ArgumentParser(
        prog="scripts/serve",
        usage="scripts/serve cpu|gpu [options] [tritonserver flags]",
        description="Serves the models of this repository; sets everything up at the first start.",
        epilog=(__doc__ or "").partition("Exit status: ")[2],
        allow_abbrev=False,
    )
    parser.add_argument("target", choices=("cpu", "gpu"), metavar="cpu|gpu", help="what the engines run on")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1; 0.0.0.0 for every one)")
    parser.add_argument("--http-port", type=int, default=8000, metavar="N", help="8000")
    parser.add_argument("--grpc-port", type=int, default=8001, metavar="N", help="8001")
    parser.add_argument("--metrics-port", type=int, default=8002, metavar="N", help="8002")
    parser.add_argument("--model-repository", type=Path, default=ROOT / "model_repository", metavar="DIR")
    parser.add_argument("--exit-timeout-secs", type=int, default=DRAIN_S, metavar="S", help="drain at most so long (30)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="tritonserver's log (logs/tritonserver-<port>.log)")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help="JSON, written once ready: addresses and pids")
    options, extra = parser.parse_known_args(arguments)
    for flag in flag_names(extra) & SERVED_HERE.keys():
        raise Refused(f"use {SERVED_HERE[flag]} instead of {flag}")
    return options, extra


def settings_of(options: argparse.Namespace, extra: Sequence[str]) -> Settings:
    """Raises Refused for a folder that holds no models."""
    repository = options.model_repository.resolve()
    models = model_folders.names(repository) if repository.is_dir() else []
    if not models:
        raise Refused(f"{options.model_repository} holds no model: --model-repository names a folder of model folders")
    log = options.log or ROOT / "logs" / f"tritonserver-{options.http_port}.log"
    return Settings(
        repository=repository,
        models=tuple(_startup_models(extra) or models),
        config_name=options.target,
        host=options.host,
        http_port=options.http_port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        drain_s=options.exit_timeout_secs,
        log=log.absolute(),
        extra=tuple(extra),
    )


def _startup_models(extra: Sequence[str]) -> list[str]:
    """The models that --load-model names, as `--load-model=x` or `--load-model x`; none where that is all of them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--load-model", action="append", default=[])
    named: list[str] = parser.parse_known_args(extra)[0].load_model
    return [] if named == ["*"] else named


def check(settings: Settings) -> None:
    """Raises Refused if the server could not run."""
    ports = {
        "--http-port": settings.http_port,
        "--grpc-port": settings.grpc_port,
        "--metrics-port": settings.metrics_port,
    }
    preflight.check_ports(settings.host, ports)
    instances = model_folders.python_instances(settings.repository, list(settings.models), settings.config_name)
    preflight.check_shared_memory(instances)


class Supervisor:
    """Runs one server from its start to its end. `run` returns the exit status."""

    def __init__(self, settings: Settings, setup: Environment, ready_file: Path | None) -> None:
        self.settings = settings
        self._progress = Progress()
        self._ready_file = ready_file
        self._fresh_log()
        self._log = ServerLog(settings.log)
        # From here on signals wait until they are asked for, so none is lost and none interrupts the clean-up.
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, signal.SIGCHLD))
        self._server = TritonServer(settings, setup)

    def _fresh_log(self) -> None:
        log = self.settings.log
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists():
            log.replace(log.with_name(log.name + ".1"))
        log.touch()

    def run(self) -> int:
        try:
            status = self._load()
            return self._serve() if status is None else status
        finally:
            if self._ready_file:
                self._ready_file.unlink(missing_ok=True)
            self._server.clean_up()

    def _load(self) -> int | None:
        """Waits until every model is ready; an exit status if that won't be."""
        waiting, tolerant = set(self.settings.models), "--exit-on-error=false" in self.settings.extra
        last_trouble = ""
        self._progress.step("loading")
        while waiting or not self._server.is_ready():
            for event in self._log.events():
                if isinstance(event, Failed):
                    self._say(f"error: model {event.model} failed to load: {event.reason}")
                    if not tolerant:
                        return self._give_up(LOAD_FAILED)
                if isinstance(event, Loaded | Failed):
                    waiting.discard(event.model)
                else:
                    last_trouble = event.text
            self._progress.status(self._loading_status(waiting))
            if self._server.exit_status() is not None:
                why = f": {last_trouble}" if last_trouble else ""
                self._say(f"error: tritonserver ended while loading, {self._server.ending()}{why}")
                return self._give_up(LOAD_FAILED)
            if _signal(0.2) in STOP_SIGNALS:
                self._progress.say("stopped")
                return STOPPED
        self._progress.done(f"{len(self.settings.models)} models ready")
        return None

    def _loading_status(self, waiting: set[str]) -> str:
        total = len(self.settings.models)
        left = f", waiting for {', '.join(sorted(waiting))}" if waiting else ", starting the endpoints"
        return f"{total - len(waiting)} of {total} models{left}"

    def _give_up(self, status: int) -> int:
        self._say(f"all of it: {_shown(self.settings.log)}")
        return status

    def _serve(self) -> int:
        print(summary(self.settings), flush=True)
        if self._ready_file:
            _write_at_once(self._ready_file, json.dumps(self._state()))
        while True:
            received = _signal(1.0)
            for event in self._log.events():
                if not isinstance(event, Loaded):
                    self._say(f"tritonserver: {event.reason if isinstance(event, Failed) else event.text}")
            if self._server.exit_status() is not None:
                self._say(f"error: tritonserver died: {self._server.ending()}")
                return self._give_up(DIED)
            if received in STOP_SIGNALS:
                return self._drain()

    def _drain(self) -> int:
        self._progress.step("stopping")
        self._server.stop()
        limit = self.settings.drain_s
        end = time.monotonic() + limit + UNLOAD_S
        while self._server.exit_status() is None:
            self._progress.status(f"requests in flight have up to {limit} s; once more stops at once")
            if _signal(0.5) in STOP_SIGNALS or time.monotonic() > end:
                self._server.kill()
        clean = self._server.exit_status() == 0
        self._progress.done("stopped" if clean else f"stopped, requests in flight were cut off ({self._server.ending()})")
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
        }

    def _say(self, text: str) -> None:
        self._progress.say(text)


def _signal(timeout_s: float) -> int | None:
    """The next signal that asks for something, SIGCHLD included; None after `timeout_s`."""
    received = signal.sigtimedwait((*STOP_SIGNALS, signal.SIGCHLD), timeout_s)
    return received.si_signo if received else None


def summary(settings: Settings) -> str:
    """What a person wants to know once the server is ready."""
    http = settings.address(settings.http_port)
    lines = [
        f"  HTTP     http://{http}",
        f"  gRPC     {settings.address(settings.grpc_port)}",
        f"  metrics  http://{settings.address(settings.metrics_port)}/metrics",
        f"  log      {_shown(settings.log)}",
    ]
    if "llm_router" in settings.models:
        body = json.dumps({"text_input": QUESTION, "max_tokens": 32, "apply_chat_template": True})
        port = "" if settings.http_port == 8000 else f" --port {settings.http_port}"
        lines += [
            "try it",
            f"  {_shown(ROOT / 'scripts' / 'ask')}{port} {shlex.quote(QUESTION)}",
            f"  curl -s http://{http}/v2/models/llm_router/generate -d {shlex.quote(body)}",
        ]
    return "\n".join([*lines, "ctrl-C stops it once the requests in flight are answered"])


def _shown(path: Path) -> str:
    """The path as seen from where the person is, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _write_at_once(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def main(arguments: Sequence[str]) -> int:
    environment.interruptible()
    try:
        options, extra = parse(arguments)
        if options.target == "gpu":
            raise Refused("serving on a GPU is not there yet: scripts/serve cpu")
        settings = settings_of(options, extra)
        check(settings)
        setup = Environment()
        with setup.ensured(Progress()):
            check(settings)  # again: the set-up may have taken minutes
            shared_memory.remove_stale()
            supervisor = Supervisor(settings, setup, options.ready_file)
            return supervisor.run()
    except Refused as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return REFUSED
    except (SetupFailed, OSError) as error:
        print(f"error: set-up failed: {error}", file=sys.stderr)
        return SETUP_FAILED
    except Interrupted as interruption:
        print("\nset-up interrupted; the next start takes it up again", file=sys.stderr)
        return interruption.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
