"""A machine that vanishes without a word, in a network namespace that test_vanished.py makes for it: packets to the
address of an engine server are dropped, so nobody closes the connections to it.

    unshare --user --map-root-user --net python -m tests.engines.remote.vanishing
"""

from __future__ import annotations

import json
import subprocess
import time

from tests.engine_server import EngineServer
from tests.engines.remote.clients import ask
from tests.engines.remote.test_tier import HOSTS, IDENTITY, SLOW, tier_of, why_not
from tests.waiting import eventually

VANISHES = (
    "route add blackhole {host}/32 table local",
    "route add local {other}/32 dev lo table local",
    "route del local 127.0.0.0/8 table local",
)
COMES_BACK = ("route add local 127.0.0.0/8 dev lo table local", "route del blackhole {host}/32 table local")


def ip(command: str) -> None:
    host, other = HOSTS
    subprocess.run(["ip", *command.format(host=host, other=other).split()], check=True)


def main() -> None:
    ip("link set lo up")
    servers = [EngineServer(9001, 9002, host=host, identity=IDENTITY) for host in HOSTS]
    with servers[0] as gone, servers[1], tier_of(*servers, silent_seconds=30) as tier:
        clients = [ask(tier, [number + 1] * 64, tokens=5000, script=SLOW) for number in range(12)]
        for client in clients:
            client.wait_for_ids(1)
        theirs = [client for client in clients if [client.ids[0]] * 4 in gone.told()["ids"]]
        began = time.monotonic()
        for command in VANISHES:
            ip(command)
        told = {"streams": len(theirs), "errors": sorted({type(client.wait().error).__name__ for client in theirs})}
        told["seconds"] = time.monotonic() - began
        told["others_ended"] = sum(client.has_ended for client in clients if client not in theirs)
        told["next"] = ask(tier, [5, 6, 7]).wait().ids
        for command in COMES_BACK:
            ip(command)
        told["is_back"] = eventually(lambda: why_not(tier)[gone.name] == "")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
