"""Real clients, as they come, in front of the stand-in; tests/server/test_gateway_clients.py has the real server."""

from __future__ import annotations

import pytest

from tests.clients.environment import PYTHON_CLIENTS, failures_of, failures_of_node

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client_is_served(client, gateway):
    assert failures_of(client, gateway.url) == {}


def test_the_npm_client_is_served(gateway):
    assert failures_of_node(gateway.url) == {}
