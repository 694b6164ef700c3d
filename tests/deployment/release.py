"""What is asked of a rendered release by the invariants of *_hold.py, and the list of those.

An invariant is a function that raises AssertionError (or fails otherwise) for a release that must not be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from bls.routing.policy_file import Policy, load_policy
from scripts import gateway, serve
from tests.deployment.chart import CHART, Object, Pod, is_server, of_kind, pods

Invariant = Callable[[Sequence[Object]], None]
INVARIANTS: list[Invariant] = []


def invariant(function: Invariant) -> Invariant:
    INVARIANTS.append(function)
    return function


def serving(objects: Sequence[Object]) -> list[Pod]:
    """The pods that answer, which leaves out jobs and the workers of a group."""
    return [pod for pod in pods(objects) if any(map(is_server, pod.containers))]


def server_of(pod: Pod) -> Object:
    (server,) = filter(is_server, pod.containers)
    return server


def settings_of(server: Object) -> serve.Settings:
    """As scripts/serve understands the container's command."""
    words = server["command"]
    return serve.settings_of(*serve.parse([*words[words.index("scripts/serve") + 1 :], *server["args"]]))


def router_instances(objects: Sequence[Object]) -> int:
    """As the chart was told; the default is that of model_repository/."""
    return int(yaml.safe_load((CHART / "values.yaml").read_text())["router"]["instances"])


def port_number(container: Object, port: int | str) -> int:
    """The number of a port that is named or not."""
    if isinstance(port, int):
        return port
    (found,) = [each["containerPort"] for each in container["ports"] if each.get("name") == port]
    return int(found)


def gateway_options(container: Object) -> argparse.Namespace:
    """As scripts/gateway understands the container's command."""
    return gateway.parser().parse_args(container["args"])


def gateways(objects: Sequence[Object]) -> list[tuple[Pod, Object]]:
    return [(pod, each) for pod in pods(objects) for each in pod.containers if each["name"] == "gateway"]


def policy_of(objects: Sequence[Object]) -> Policy:
    (text,) = [each["data"]["policy.py"] for each in of_kind(objects, "ConfigMap") if "policy.py" in each["data"]]
    return load_policy(Path("policy.py"), text.encode())


def all_volumes(objects: Sequence[Object]) -> list[Object]:
    return [volume for pod in pods(objects) for volume in pod.volumes.values()]
