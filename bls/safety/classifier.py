"""The text classifier, asked through its ensemble: what the prompt's classifier check goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bls.arrays import strings
from bls.contract import TEXT_PIPELINE
from bls.ports import Caller

MAX_UNKNOWN_SHARE = 0.3  # Of a text's tokens; beyond it, as in Chinese, the model has not read what it classifies.


def classifier(models: Caller) -> Callable[[str], Mapping[str, float]]:
    """A function from a text to the score of each class, none where the model can't read it.

    It raises a RouterError where the classifier isn't loaded.
    """

    def classify(text: str) -> Mapping[str, float]:
        outputs = models.call(TEXT_PIPELINE, {"text": strings(text)}, ["labels", "scores", "unknown_share"])
        if outputs["unknown_share"].flat[0] > MAX_UNKNOWN_SHARE:
            return {}
        labels, scores = outputs["labels"].flat, outputs["scores"].flat
        return {label.decode(): float(score) for label, score in zip(labels, scores, strict=True)}

    return classify
