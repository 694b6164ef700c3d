"""The text classifier, asked through its ensemble: what the prompt's classifier check goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bls.arrays import strings
from bls.contract import TEXT_PIPELINE


class Caller(Protocol):
    def call(self, model: str, tensors: Any, outputs: Sequence[str]) -> Any: ...


def classifier(models: Caller) -> Callable[[str], Mapping[str, float]]:
    """A function from a text to the score of each class; it raises a RouterError where the classifier isn't loaded."""

    def classify(text: str) -> Mapping[str, float]:
        outputs = models.call(TEXT_PIPELINE, {"text": strings(text)}, ["labels", "scores"])
        labels, scores = outputs["labels"].flat, outputs["scores"].flat
        return {label.decode(): float(score) for label, score in zip(labels, scores, strict=True)}

    return classify
