"""The bench of the router on a real server: all that it was asked for is in its JSON."""

from __future__ import annotations

import json

import pytest

from scripts.bench import router

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]


def test_cold_rounds_and_what_a_response_costs_stand_beside_the_others(capsys):
    flags = ["--streams=2", "--rounds=1", "--tokens=16", "--cold", "--profile"]
    assert router.main(flags) == 0
    output = capsys.readouterr().out
    found = json.loads(output.splitlines()[-1])
    for each in found["streams_2"], found["streams_2_interval_1"]:
        assert {"router", "router_cold"} <= set(each) & set(each["response_cost"])
        assert each["router_cold_over_engine_cold"]["median"] > 0
        costs = each["response_cost"]["router_cold"]
        assert costs["llm_router, main thread"]["user"] > 0 and costs["tritonserver"]["wake_ups"] > 0
    # A response for every token costs a stream as many responses as it has tokens.
    assert found["streams_2_interval_1"]["router"]["tokens_per_response"] == pytest.approx(1, abs=0.1)
