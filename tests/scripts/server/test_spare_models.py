"""Which models a server does without."""

from __future__ import annotations

from pathlib import Path

import pytest

from bls.contract import ROUTER, TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER
from scripts.server import spare_models
from scripts.server.server_log import Failed
from scripts.server.spare_models import SpareModelFailed
from scripts.server.tritonserver import Settings

ALL = (ROUTER, "preprocessing", TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER)


def settings(*extra: str, models: tuple[str, ...] = ALL) -> Settings:
    log = Path("/logs/log")
    return Settings(Path("/models"), models, "cpu", "127.0.0.1", 8000, 8001, 8002, 30, log, extra)


@pytest.mark.parametrize("model", [TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER])
def test_the_router_goes_without_its_classifier_and_it_is_said_why(model):
    with pytest.raises(SpareModelFailed) as failed:
        spare_models.check(settings(), Failed(model, "broken"))
    left = spare_models.without(settings(), failed.value)
    assert left.models == (ROUTER, "preprocessing")
    assert left.left_out.endswith(f": model {model} failed to load: broken")
    assert all(name in left.left_out for name in spare_models.SPARE)


@pytest.mark.parametrize(
    ("served", "failed"),
    [
        (settings(), "preprocessing"),
        (settings(), ROUTER),
        (settings(models=ALL[2:]), TEXT_CLASSIFIER),
        (settings(f"--load-model={TEXT_PIPELINE}"), TEXT_PIPELINE),
        (settings("--load-model", TEXT_PIPELINE), TEXT_PIPELINE),
        (settings("--model-control-mode=poll"), TEXT_CLASSIFIER),
        (settings("--exit-on-error=false"), TEXT_CLASSIFIER),
    ],
)
def test_what_is_needed_or_was_asked_for_by_name_is_not_left_out(served, failed):
    spare_models.check(served, Failed(failed, "broken"))
