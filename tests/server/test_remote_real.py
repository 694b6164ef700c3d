"""The real model behind a router whose tiers are on another server: the same texts as where all is on one machine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bls.contract import LARGE, SMALL
from tests.server.clients import answer, events_of
from tests.server.remote_tiers import HOSTS, EngineServer, router_repository
from tests.server.serving import ROOT, Server, free_ports, running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

NAMED = (
    "a river",
    "a clock",
    "the moon",
    "a train",
    "an island",
    "a violin",
    "the desert",
    "a baker",
    "a bridge",
    "snow",
)
ASKED = ("Write a sentence about {}.", "What is {}?", "Name three things that {} needs.", "Tell a child about {}.")


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A router before one engine server that has both tiers, SmolLM2 as shipped."""
    folder = tmp_path_factory.mktemp("remote-real")
    ports = tuple(free_ports(3))
    engines = EngineServer(folder, ROOT / "model_repository", HOSTS["real"], ports, "--tier=small", "--tier=large")
    with ExitStack() as stack:
        stack.callback(engines.end)
        engines.start()
        repository = router_repository(folder / "router", ports[2], routers=2)
        flags = [f"--remote={tier}={engines.endpoint}" for tier in ("small", "large")]
        yield stack.enter_context(running_server(folder, repository, *flags))


def prompt(number: int) -> dict[str, Any]:
    """Every tenth is for the large tier; half of them are sampled."""
    chance = random.Random(number)
    text = f"{number}: {chance.choice(ASKED)}".format(chance.choice(NAMED))
    text = text if number % 10 else f"{'plan ' * 520}{text}"
    sampling = {"temperature": 0.8, "top_p": 0.9, "seed": number} if number % 2 else {}
    return {"text_input": text, "max_tokens": 10, "apply_chat_template": True, "return_route_info": True, **sampling}


def texts(server: Server, count: int) -> list[tuple[str, str, str]]:
    found = []
    for number in range(count):
        reply = answer(server, **prompt(number))
        found.append((json.loads(reply["route_info"])["model"], reply["finish_reason"], reply["text_output"]))
    return found


def test_twenty_prompts_get_the_texts_that_they_get_on_one_machine(server, router):
    here, there = texts(server, 20), texts(router, 20)
    assert there == here
    assert {model for model, *_ in here} == {SMALL, LARGE}


@pytest.mark.slow
def test_two_hundred_prompts_do_too(server, router):
    """Whichever tier answers: both have the same model here, and on a full machine one may be passed over."""
    assert [text for _, *text in texts(router, 200)] == [text for _, *text in texts(server, 200)]


def test_a_stream_comes_in_pieces_and_adds_up_to_the_same_text(server, router):
    asked = {"text_input": "Tell a story about the sea.", "max_tokens": 60, "apply_chat_template": True}
    pieces = [event.get("text_output", "") for event in events_of(router, **asked)]
    assert len(pieces) > 2
    assert "".join(pieces) == answer(server, **asked)["text_output"]


def test_a_schema_and_log_probabilities_go_through(router):
    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
    guide = {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": json.dumps(schema)}
    reply = answer(router, text_input="Is the sky blue?", max_tokens=40, return_log_probs=True, **guide)
    assert json.loads(reply["text_output"])["yes"] in (True, False)
    assert reply["cum_log_probs"] < 0
