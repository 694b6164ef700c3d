"""Real clients, as they come, against the gateway in front of the real server with echo engines."""

from __future__ import annotations

import pytest

from tests.clients.environment import PYTHON_CLIENTS, SLOW, failures_of, failures_of_node
from tests.gateway.gateway_process import running
from tests.server import echo_repository
from tests.server.serving import running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def echoes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    with running_server(folder, echo_repository.make(folder, routers=6, classifier=True)) as server:
        yield server


@pytest.fixture(scope="module")
def url(echoes, tmp_path_factory):
    with running(tmp_path_factory.mktemp("gateway"), echoes.grpc_url) as gateway:
        yield gateway.url


@pytest.mark.parametrize("client", [*PYTHON_CLIENTS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_python_client_is_served(client, url):
    assert failures_of(client, url) == {}


def test_the_npm_client_is_served(url):
    assert failures_of_node(url) == {}


def test_litellm_is_served_by_triton_itself_too(echoes):
    assert failures_of("litellm_triton", echoes.http_url) == {}
