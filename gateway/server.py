"""Runs the gateway: listens, says where, and ends in order.

A signal makes /ready say no at once; after the lame duck's time new requests are turned away; answers that run are sent
to their end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
import uvloop

from gateway.admin import Admin
from gateway.app import Gateway
from gateway.connection import protocol
from gateway.keys import Keys
from gateway.ledger import Ledger
from gateway.limits import Limits
from gateway.settings import Settings
from gateway.shared import Shared, Workers
from gateway.workers import Minder

_KEEP_ALIVE_S = 75  # longer than a proxy's 60, so that it is the proxy who closes an idle connection
_LOOK_S = 0.05


class Server(uvicorn.Server):
    """uvicorn's, but for the signals: those are the drain's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Listeners:
    """Sockets of the gateway, and of its admin door if it has one."""

    public: socket.socket
    admin: socket.socket | None = None


def listen(settings: Settings) -> Listeners:
    """Port 0 takes a free one. Raises OSError, whose `filename` is the address that can't be had."""
    public = _listen(settings.host, settings.port)
    return Listeners(public, _listen(*settings.admin) if settings.admin else None)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        known = error.errno and error.errno > 0  # else it is of the resolver
        reason = os.strerror(error.errno or 0) if known else error.strerror
        raise OSError(error.errno, reason, f"{host}:{port}") from None


def run(settings: Settings, listeners: Listeners, say: Callable[[str], None]) -> int:
    """Serves until a signal; the exit status. `say` gets what happens, line by line. Raises BadKeys and BadLedger."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the soft limit is often less than --max-connections
    Keys(settings.keys)  # so that a file that can't be used is refused before anything is said
    shared = Workers(settings.workers) if settings.workers > 1 else Shared()
    Ledger(settings.ledger).sums(Limits(shared.accounts).spend)
    say(f"listening on http://{_address(listeners.public)}")
    if listeners.admin:
        say(f"admin door on http://{_address(listeners.admin)}")
    if isinstance(shared, Workers):
        return Minder(settings, listeners, say, shared, _run_one).run()
    return _run_one(settings, listeners, say, shared)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def _run_one(settings: Settings, listeners: Listeners, say: Callable[[str], None], shared: Shared) -> int:
    return uvloop.run(_serve(settings, listeners, say, shared))


async def _serve(settings: Settings, listeners: Listeners, say: Callable[[str], None], shared: Shared) -> int:
    gateway = Gateway(settings, shared)
    server = Server(_config(gateway, protocol(settings)))
    gateway.draining.close_idle = lambda: _close_idle(server.server_state.connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    servers = [server]
    serving = [asyncio.create_task(server.serve([listeners.public]))]
    if listeners.admin and settings.admin:
        servers.append(Server(_config(Admin(gateway, settings.admin[0]), "httptools")))
        serving.append(asyncio.create_task(servers[-1].serve([listeners.admin])))
    await stop.wait()
    is_empty = await _drain(gateway, stop)
    for each in servers:
        each.should_exit = True
        each.force_exit = not is_empty
    await asyncio.wait(serving)
    await gateway.close()
    return 0 if is_empty else 6


def _config(app: Any, http: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


def _close_idle(connections: Iterable[Any]) -> None:
    for connection in list(connections):
        connection.close_if_idle()


async def _drain(gateway: Gateway, stop: asyncio.Event) -> bool:
    """Whether every answer ended within the time; a second signal ends the wait."""
    gateway.draining.end()
    gateway.draining.look(gateway.running)
    stop.clear()
    # Nothing is left of the lame duck's time where the admin door began the drain.
    earliest = time.monotonic() + gateway.draining.lame_duck_left_s
    while not stop.is_set():
        now = time.monotonic()
        if now >= earliest and (not gateway.running or now >= earliest + gateway.settings.drain_s):
            break
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_S)
    if gateway.running:
        logging.warning("%d answers are cut off", gateway.running)
    return not gateway.running
