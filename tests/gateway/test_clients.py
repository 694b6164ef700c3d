"""Real clients, as they come, in front of the stand-in; tests/server/test_gateway_clients.py has the real server."""

from __future__ import annotations

import pytest

from tests.clients.environment import PYTHON_CLIENTS, SLOW, failures_of, failures_of_node
from tests.gateway.gateway_process import running

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("client", [*PYTHON_CLIENTS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_python_client_is_served(client, gateway):
    assert failures_of(client, gateway.url) == {}


def test_the_npm_client_is_served(gateway):
    assert failures_of_node(gateway.url) == {}


def test_structured_output_is_served(gateway):
    assert failures_of("openai_structured", gateway.url) == {}


def test_refusals_that_are_errors_are_known_to_litellm_as_such(tmp_path, fake):
    with running(tmp_path, fake.target, "--refusals=error") as gateway:
        assert failures_of("litellm_client", gateway.url) == {}
