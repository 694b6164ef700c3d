"""Token ids to classes and an embedding, by ONNX Runtime on a CPU. See engines/classifier/session.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls import manifest, triton_io
from bls.contract import TEXT_CLASSIFIER_CONTRACT
from engines.classifier import manifest as text_manifest
from engines.classifier.session import Classifier


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        folder = manifest.built_folder(triton_io.repository(args), text_manifest.CLASSIFIER)
        threads = int(triton_io.parameters(args)["threads"])
        self._classifier = Classifier(text_manifest.load(folder), threads)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_together(requests, TEXT_CLASSIFIER_CONTRACT, self._classifier.answer)
