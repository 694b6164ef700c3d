from __future__ import annotations

from pathlib import Path

import pytest

from scripts.environment import Environment
from scripts.tritonserver import Settings, command


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


def test_a_backend_setting_does_not_replace_the_one_that_the_clean_up_needs():
    found = flags("--backend-config=python,thread-pool-size=64")
    assert "--backend-config=python,shm-region-prefix-name=prefix_" in found
    assert found[-1] == "--backend-config=python,thread-pool-size=64"
