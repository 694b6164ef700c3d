"""Text to the classifier's token ids. See engines/classifier/tokenizer.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls import manifest, triton_io
from bls.contract import TEXT_TOKENIZER_CONTRACT
from engines.classifier import manifest as text_manifest
from engines.classifier.tokenizer import TextTokenizer


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        folder = manifest.built_folder(triton_io.repository(args), text_manifest.CLASSIFIER)
        multiple = int(triton_io.parameters(args)["pad_to_multiple_of"])
        self._tokenizer = TextTokenizer(text_manifest.load(folder), multiple)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(requests, TEXT_TOKENIZER_CONTRACT, self._tokenizer.answer)
