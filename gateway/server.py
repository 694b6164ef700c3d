"""Runs the gateway: listens, says where, and ends in order.

A signal makes /ready say no at once; answers that run are sent to their end.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn
import uvloop

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


def listen(settings: Settings) -> socket.socket:
    """The socket; port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=2048)


def run(settings: Settings, listener: socket.socket, say: Callable[[str], None]) -> int:
    """Serves until a signal; the exit status. `say` gets what happens, line by line. Raises BadKeys and BadLedger."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the soft limit is often less than --max-connections
    Keys(settings.keys)  # so that a file that can't be used is refused before anything is said
    shared = Workers(settings.workers) if settings.workers > 1 else Shared()
    Ledger(settings.ledger).sums(Limits(shared.accounts).spend)
    host, port = listener.getsockname()[:2]
    say(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    if isinstance(shared, Workers):
        return Minder(settings, listener, say, shared, _run_one).run()
    return _run_one(settings, listener, say, shared)


def _run_one(settings: Settings, listener: socket.socket, say: Callable[[str], None], shared: Shared) -> int:
    return uvloop.run(_serve(settings, listener, say, shared))


async def _serve(settings: Settings, listener: socket.socket, say: Callable[[str], None], shared: Shared) -> int:
    gateway = Gateway(settings, shared)
    config = uvicorn.Config(
        gateway,
        http=protocol(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = Server(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve([listener]))
    await stop.wait()
    say("draining: answers that run are sent to their end")
    is_empty = await _drain(gateway, settings.drain_s, stop)
    server.should_exit = True
    server.force_exit = not is_empty
    await serving
    await gateway.close()
    return 0 if is_empty else 6


async def _drain(gateway: Gateway, seconds: float, stop: asyncio.Event) -> bool:
    """Whether every answer ended within the time; a second signal ends the wait."""
    gateway.drain()
    stop.clear()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while gateway.running and loop.time() < end and not stop.is_set():
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_S)
    if gateway.running:
        logging.warning("%d answers are cut off", gateway.running)
    return not gateway.running
