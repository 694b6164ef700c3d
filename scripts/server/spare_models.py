"""The models that the router does without. A server whose text classifier fails to load is started again without it.

Prompts are then judged as the policy says of a check that breaks: as if the classifier had found nothing, by default.
"""

from __future__ import annotations

from dataclasses import replace

from bls.contract import ROUTER, TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER
from scripts.server.server_log import Failed
from scripts.server.server_options import flag_names
from scripts.server.tritonserver import Settings

SPARE = (TEXT_TOKENIZER, TEXT_CLASSIFIER, TEXT_PIPELINE)  # No one of them is of use without the others.


class SpareModelFailed(Exception):
    """`model` did not load, for a `reason` of one line; what remains is worth a start."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"model {model} failed to load: {reason}")
        self.model = model


def check(settings: Settings, failed: Failed) -> None:
    """Raises SpareModelFailed for one that is not needed."""
    if failed.model in _spare(settings):
        raise SpareModelFailed(failed.model, failed.reason)


def without(settings: Settings, failed: SpareModelFailed) -> Settings:
    """The same server but for these models."""
    left = tuple(model for model in settings.models if model not in SPARE)
    return replace(settings, models=left, left_out=f"{', '.join(_spare(settings))}: {failed}")


def _spare(settings: Settings) -> tuple[str, ...]:
    """None where a person has named the models, or where no router goes without them."""
    is_named = "--load-model" in flag_names(settings.extra) or settings.tolerates_failed_models
    if is_named or not settings.loads_explicitly or ROUTER not in settings.models:
        return ()
    return tuple(model for model in SPARE if model in settings.models)
