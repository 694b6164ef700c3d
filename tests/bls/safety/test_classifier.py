from __future__ import annotations

import numpy as np
import pytest

from bls.arrays import strings
from bls.contract import TEXT_PIPELINE, TEXT_PIPELINE_CONTRACT
from bls.errors import EngineUnavailable
from bls.safety.classifier import classifier


class FakePipeline:
    def __init__(self, unknown_share=0.0, error=None):
        self.unknown_share, self.error = unknown_share, error

    def call(self, model, tensors, outputs):
        assert model == TEXT_PIPELINE
        assert set(tensors) == TEXT_PIPELINE_CONTRACT.input_names
        assert set(outputs) <= TEXT_PIPELINE_CONTRACT.output_names
        if self.error:
            raise self.error
        return {
            "labels": strings("code", "advice"),
            "scores": np.array([[0.75, 0.25]], np.float32),
            "unknown_share": np.array([[self.unknown_share]], np.float32),
        }


def test_gives_the_score_of_each_class():
    assert classifier(FakePipeline())("write a parser") == {"code": 0.75, "advice": 0.25}


def test_says_nothing_of_a_text_that_the_model_cannot_read():
    assert classifier(FakePipeline(unknown_share=0.5))("写一个解析器") == {}


def test_a_classifier_that_is_not_loaded_is_an_error():
    with pytest.raises(EngineUnavailable):
        classifier(FakePipeline(error=EngineUnavailable("text_pipeline_ensemble is not loaded")))("hi")
