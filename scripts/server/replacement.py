"""scripts/serve --replace: has the scripts/serve that runs change over to a new server, and waits until it has.

The new server takes the code of bls/ and of the models, configs, engines and words as they are now; the flags stay
those that the running scripts/serve was started with, and so does its own code.
"""

from __future__ import annotations

import http.client
import os
import time
from contextlib import nullcontext

from scripts.diagnosis import process
from scripts.environment import Environment
from scripts.host import processes
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.server.supervisor import LOAD_FAILED, REPLACE_SIGNAL
from scripts.server.tritonserver import Settings

START_S = 60.0  # beyond the drain, until the new server must have been seen: the old one may have to end first
AGAIN_S = 5.0  # until one that was aborted must have been started again
LOOK_S = 0.2


def have_replaced(settings: Settings, setup: Environment | None, progress: Progress) -> int:
    """The exit status: 0 once another server serves, 3 where it did not get ready. Raises Refused and SetupFailed."""
    old, supervisor = _running(settings)
    with setup.ensured(progress) if setup else nullcontext():
        os.kill(supervisor, REPLACE_SIGNAL)
        progress.step("changing over")
        known = _servers(supervisor)
        end, new = time.monotonic() + settings.drain_s + START_S, set[int]()
        while processes.is_alive(supervisor):
            now = _servers(supervisor)
            new |= now - known
            if old not in now and new & now and _is_live(settings):
                progress.done("the new server serves")
                return 0
            if new & now:
                end = time.monotonic() + AGAIN_S
            elif time.monotonic() > end:
                break
            is_coming = old in now and len(now) == 1 + len(new)
            progress.status("the new server loads, then clients of the old one move" if is_coming else "")
            time.sleep(LOOK_S)
    progress.say("error: the new server did not get ready; what scripts/serve printed says why")
    return LOAD_FAILED


def _running(settings: Settings) -> tuple[int, int]:
    """The processes of the server at the HTTP port and of its scripts/serve."""
    server = process.find(settings.http_port)
    supervisor = server.pid if server else 0
    while supervisor and not any(word.endswith("scripts/serve.py") for word in processes.command(supervisor)):
        supervisor = processes.parent(supervisor)
    if not server or not supervisor:
        raise Refused(f"no scripts/serve of this machine serves port {settings.http_port}: --http-port names another")
    return server.pid, supervisor


def _is_live(settings: Settings) -> bool:
    """Whether a server answers at the port, which it does once its models are loaded."""
    connection = http.client.HTTPConnection(settings.local_host, settings.http_port, timeout=2)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _servers(supervisor: int) -> set[int]:
    """The tritonservers that it runs."""
    return {
        pid for pid in processes.tree(supervisor) if processes.role(pid) == "tritonserver" and processes.is_alive(pid)
    }
