"""Which models an engine server and a router with remote tiers load, and what is refused."""

from __future__ import annotations

import pytest

from bls.contract import ENGINE_CONTROL, LARGE, LLAMA_7B, LLAMA_7B_ENSEMBLE, ROUTER, SMALL, TEXT_CLASSIFIER
from engines.remote.settings import VARIABLE
from scripts import serve
from scripts.host.preflight import Refused
from scripts.server import canary
from scripts.server.tritonserver import start_of

BOTH = ["--remote", "small=a:1,b:1", "--remote", "large=c:1"]


@pytest.fixture(autouse=True)
def nothing_is_said_outside(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def settings_of(*arguments, target="cpu"):
    return serve.settings_of(*serve.parse([target, *arguments]))


def test_an_engine_server_loads_its_engine_and_what_stops_it_and_has_no_gateway():
    settings = settings_of("--tier", "small", "--host", "0.0.0.0")
    assert settings.models == (ENGINE_CONTROL, SMALL)
    assert (settings.config_name, settings.host, settings.has_engines) == ("cpu", "0.0.0.0", True)
    assert settings_of("--tier=small", "--tier=large").models == (ENGINE_CONTROL, SMALL, LARGE)
    assert settings_of("--tier=large", target="gpu").models == (ENGINE_CONTROL, LARGE)


def test_a_router_with_remote_tiers_loads_all_but_what_computes_here():
    settings = settings_of(*BOTH)
    assert settings.config_name == "remote" and not settings.has_engines
    assert {ROUTER, SMALL, LARGE, ENGINE_CONTROL, TEXT_CLASSIFIER} <= set(settings.models)
    assert not {LLAMA_7B, LLAMA_7B_ENSEMBLE} & set(settings.models)


def test_its_processes_are_told_where_the_tiers_are():
    from scripts.environment import Environment

    assert start_of(settings_of(*BOTH), Environment()).variables[VARIABLE] == "small=a:1,b:1 large=c:1"


def test_the_variable_stands_for_the_option_where_that_is_not_given(monkeypatch):
    monkeypatch.setenv(VARIABLE, "small=a:1 large=b:1")
    assert settings_of().remote == "small=a:1 large=b:1"
    assert settings_of(*BOTH).remote == "small=a:1,b:1 large=c:1"
    assert settings_of("--tier=small").has_engines


def test_a_tier_may_be_left_out():
    settings = settings_of("--remote=small=a:1", f"--skip-model={LARGE}")
    assert SMALL in settings.models and LARGE not in settings.models


def test_the_canary_asks_a_remote_tier_nothing_that_its_servers_would_have_to_answer():
    names = {probe.name for probe in canary.probes(settings_of(*BOTH))}
    assert {SMALL, LARGE} <= names
    assert canary._REMOTE_BODY["stop"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--remote", "small=a:1"], f"does not say where the tier large is: .* --skip-model={LARGE}"),
        ([*BOTH, "--remote", "medium=a:1"], "names the tier medium, which is not served"),
        ([*BOTH, f"--load-model={LLAMA_7B}"], f"leaves {LLAMA_7B} out"),
        (["--remote", "small"], "--remote is 'small'; legal: TIER=HOST:PORT"),
        (["--remote", "small=a"], "legal: HOST:PORT"),
        ([*BOTH, "--tier", "small"], "give one of them"),
        (["--tier", "medium"], "there is no model tensorrt_llm_medium; the tiers are large, small"),
        (["--tier", "small", "--skip-model", LARGE], "--tier cannot be combined with"),
        ([*BOTH, "--model-control-mode=poll"], "--remote cannot be combined with"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments, said):
    with pytest.raises(Refused, match=said):
        settings_of(*arguments)


def test_a_router_without_engines_needs_no_gpu():
    with pytest.raises(Refused, match="--remote needs serve cpu"):
        settings_of(*BOTH, target="gpu")


def test_an_engine_server_cannot_be_closed_to_all_but_a_router_that_it_has_not():
    with pytest.raises(Refused, match="closes engines to all but llm_router, which this server doesn't have"):
        settings_of("--tier=small", "--close-engines")
