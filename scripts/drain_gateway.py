"""Has a running gateway drain, or serve again, by its admin door; waits until nothing is in flight any more.

    scripts/gateway drain                         of a gateway that was started with --admin 9001
    scripts/gateway drain --admin 9101 --drain-seconds 60
    scripts/gateway undrain

For a preStop hook: /ready says no at once, new requests are turned away after the gateway's --lame-duck-s, and the
gateway lives on until it gets its signal. Exit status: 0 nothing is in flight; 2 refused, or no gateway is there; 6 the
time is up, and answers still run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from collections.abc import Sequence

from scripts.host.preflight import Refused

ADMIN_PORT = 9001
REFUSED, CUT_OFF = 2, 6
_LOOK_S = 0.25  # what other processes of the gateway tell is so old
_QUIET_LOOKS = 3
_PATIENCE_S = 5.0


def address(text: str) -> tuple[str, int]:
    """Of an admin door, from PORT or HOST:PORT; this machine's without a host. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not 1 <= int(port) <= 65535:
        raise ValueError(port)
    return host, int(port)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("drain", "undrain"))
    parser.add_argument("--admin", default=str(ADMIN_PORT), metavar="[HOST:]PORT", help="of the gateway (9001)")
    parser.add_argument(
        "--drain-seconds", type=float, default=30.0, metavar="S", help="how long to wait for answers that run (30)"
    )
    options = parser.parse_args(arguments)
    try:
        door = address(options.admin)
    except ValueError:
        parser.error(f"--admin must be PORT or HOST:PORT, not {options.admin!r}")
    try:
        state = ask(door, "POST", f"/{options.what}")
        return _wait(door, options.drain_seconds) if state["draining"] else 0
    except Refused as reason:
        print(f"error: {reason}", file=sys.stderr)
        return REFUSED


def ask(door: tuple[str, int], method: str, path: str, patience_s: float = _PATIENCE_S) -> dict[str, int]:
    """What the door says: "draining", "refusing", "in_flight". Raises Refused."""
    connection = http.client.HTTPConnection(*door, timeout=patience_s)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        found: dict[str, int] = json.loads(answer.read())
        if answer.status != 200:
            raise Refused(f"the admin door at {door[0]}:{door[1]} says {answer.status}: {found.get('error')}")
        return found
    except (OSError, http.client.HTTPException, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Refused(f"no admin door at {door[0]}:{door[1]}: {told}; it is scripts/gateway --admin") from None
    finally:
        connection.close()


def _wait(door: tuple[str, int], seconds: float) -> int:
    end, quiet, said = time.monotonic() + seconds, 0, -1
    while True:
        state = ask(door, "GET", "/drain")
        running = state["in_flight"]
        quiet = quiet + 1 if state["refusing"] and not running else 0
        if quiet >= _QUIET_LOOKS:
            print("drained: nothing is in flight", flush=True)
            return 0
        if not state["draining"]:
            raise Refused("somebody had the gateway serve again")
        if running != said:
            print(f"draining: {running} in flight", flush=True)
            said = running
        if time.monotonic() > end:
            print(f"error: {running} still in flight after {seconds:g} s", file=sys.stderr)
            return CUT_OFF
        time.sleep(_LOOK_S)
