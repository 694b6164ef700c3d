"""Real clients, as they come, against the gateway in front of the real server with echo engines."""

from __future__ import annotations

import pytest

from tests.clients.environment import PYTHON_CLIENTS, failures_of, failures_of_node
from tests.gateway.gateway_process import running
from tests.server import echo_repository
from tests.server.serving import running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    repository = echo_repository.make(folder, routers=6, classifier=True)
    with running_server(folder, repository) as server, running(folder, server.grpc_url) as gateway:
        yield gateway.url


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client_is_served(client, url):
    assert failures_of(client, url) == {}


def test_the_npm_client_is_served(url):
    assert failures_of_node(url) == {}
