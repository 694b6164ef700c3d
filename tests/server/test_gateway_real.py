"""The gateway in front of the real engines: what echoes can't show, such as answers held to a schema, or drawn."""

from __future__ import annotations

import pytest

from tests.clients.environment import failures_of
from tests.gateway.gateway_process import running

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def gateway(server, tmp_path_factory):
    with running(tmp_path_factory.mktemp("gateway"), server.grpc_url) as process:
        yield process


def text_of(gateway, **fields):
    return gateway.chat("Tell me a story.", max_tokens=24, **fields).json["choices"][0]["message"]["content"]


def test_structured_output_is_served(gateway):
    assert failures_of("openai_structured", gateway.url) == {}


def test_a_seed_draws_the_same_again_and_another_seed_something_else(gateway):
    first, again, other = (text_of(gateway, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_at_temperature_nothing_is_drawn(gateway):
    assert text_of(gateway, temperature=0.0) == text_of(gateway, temperature=0, top_p=0.5, seed=7) == text_of(gateway)


def test_an_answer_goes_on_to_its_limit_where_its_end_is_to_be_ignored(gateway):
    question = "Answer with yes or no: is the sky blue?"
    reply = gateway.chat(question, max_tokens=96, ignore_eos=True).json
    assert reply["usage"]["completion_tokens"] == 96 and reply["choices"][0]["finish_reason"] == "length"
