"""Two pods on loopback addresses, and each balancer in front of both, for all tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.balancers import programs
from tests.balancers.pods import Pod, running_pods
from tests.balancers.programs import CONFIGS, Balancer

HOSTS = ("127.0.1.1", "127.0.1.2")
FEW_ROUTERS = 6
FLAGS = ("--drain-seconds=60", "--lame-duck-s=2")


def print_with_load(text: str) -> None:
    """A figure, and how busy the machine was: shown by `pytest -s`."""
    print(f"\n    {text} (load average {os.getloadavg()[0]:.1f})", flush=True)


@pytest.fixture(scope="module")
def pods(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pod]]:
    """With so many router processes each as the module's ROUTERS says."""
    routers = getattr(request.module, "ROUTERS", FEW_ROUTERS)
    with running_pods(tmp_path_factory.mktemp("pods"), HOSTS, routers, *FLAGS) as found:
        yield found


@pytest.fixture(scope="module")
def balancers(pods: list[Pod], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Balancer]]:
    folder = tmp_path_factory.mktemp("balancers")
    with ExitStack() as stack:
        yield {name: stack.enter_context(programs.running(name, folder, pods)) for name in CONFIGS}
