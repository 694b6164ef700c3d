from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.environment import Environment
from scripts.server.tritonserver import ONE_BY_ONE, Settings, command, variables


def settings(*extra: str) -> Settings:
    return Settings(
        repository=Path("/models"),
        models=("llm_router", "preprocessing"),
        config_name="cpu",
        host="127.0.0.1",
        http_port=8000,
        grpc_port=8001,
        metrics_port=8002,
        drain_s=30,
        log=Path("/logs/log"),
        extra=extra,
    )


def flags(*extra: str) -> list[str]:
    return command(settings(*extra), Environment(Path("/root-of-it")), "prefix_")


def test_models_are_named_one_by_one_so_that_they_can_be_unloaded_and_loaded():
    found = flags()
    assert "--model-control-mode=explicit" in found
    assert [flag for flag in found if "load-model" in flag] == ["--load-model=llm_router", "--load-model=preprocessing"]


@pytest.mark.parametrize("extra", [("--model-control-mode=poll",), ("--model-control-mode", "poll")])
def test_a_default_gives_way_to_what_a_person_says(extra):
    found = flags(*extra)
    assert "--model-control-mode=explicit" not in found
    assert not [flag for flag in found if "load-model" in flag]
    assert tuple(found[-len(extra) :]) == extra


@pytest.mark.parametrize("extra", [("--model-control-mode=explicit",), ("--model-control-mode", "explicit")])
def test_models_are_named_when_a_person_asks_for_explicit_loading_too(extra):
    found = flags(*extra)
    assert [flag for flag in found if "load-model" in flag] == ["--load-model=llm_router", "--load-model=preprocessing"]
    assert len([flag for flag in found if "model-control-mode" in flag]) == 1
    named = flags(*extra, "--load-model=preprocessing")
    assert [flag for flag in named if "load-model" in flag] == ["--load-model=preprocessing"]


@pytest.mark.parametrize(
    ("extra", "tolerant"),
    [
        ((), False),
        (("--exit-on-error=false",), True),
        (("--exit-on-error", "false"), True),
        (("--exit-on-error=OFF", "--log-verbose=1"), True),
        (("--exit-on-error=true",), False),
        (("--exit-on-error=false", "--exit-on-error", "1"), False),
    ],
)
def test_failed_models_are_tolerated_where_a_person_says_so(extra, tolerant):
    assert settings(*extra).tolerates_failed_models is tolerant


def test_a_backend_setting_does_not_replace_the_one_that_the_clean_up_needs():
    found = flags("--backend-config=python,thread-pool-size=64")
    assert "--backend-config=python,shm-region-prefix-name=prefix_" in found
    assert found[-1] == "--backend-config=python,thread-pool-size=64"


def test_instances_are_loaded_one_by_one_where_that_is_asked_for_and_a_person_says_nothing_else(monkeypatch):
    name, value = ONE_BY_ONE
    installation, careful = Environment(Path("/root-of-it")), replace(settings(), one_by_one=True)
    monkeypatch.delenv(name, raising=False)
    assert name not in variables(settings(), installation, "prefix_")
    assert variables(careful, installation, "prefix_")[name] == value
    monkeypatch.setenv(name, "1")
    assert variables(careful, installation, "prefix_")[name] == "1"
