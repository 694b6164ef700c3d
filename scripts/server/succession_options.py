"""The options of scripts/serve for servers that die or are replaced."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from scripts.host.preflight import Refused


@dataclass(frozen=True)
class Plan:
    """What a person chose. restarts: a server that died is started again; beside: a new one starts beside the old one
    that it replaces; standby: one waits, ready, all the time.
    """

    restarts: bool = True
    beside: bool = True
    standby: bool = False


def add_to(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("servers that die or are replaced")
    group.add_argument("--no-restart", action="store_true", help="leave a server that died to the platform (status 4)")
    group.add_argument("--replace", action="store_true", help="have the scripts/serve of --http-port change over")
    group.add_argument(
        "--changeover",
        choices=("beside", "stop-first"),
        help="a new server starts beside the old one, which takes the memory of both (cpu), or after it (gpu)",
    )
    group.add_argument("--standby", action="store_true", help="keep a second server ready, in the memory of both")


def plan_of(options: argparse.Namespace) -> Plan:
    """Raises Refused for what doesn't go together."""
    uses_mpi = options.world_size is not None or options.multi_model
    changeover = options.changeover or ("beside" if options.target == "cpu" else "stop-first")
    if uses_mpi and changeover == "beside":
        raise Refused("--changeover=beside is not possible where mpirun starts the server")
    if options.standby and changeover != "beside":
        raise Refused("--standby needs --changeover=beside: two servers at a time")
    return Plan(restarts=not options.no_restart, beside=changeover == "beside", standby=options.standby)
