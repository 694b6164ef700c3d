"""Whole texts through the sensitive-word filter. See bls/words/whole_texts.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls import triton_io
from bls.contract import SENSITIVE_WORDS_CONTRACT
from bls.words.table import words_beside
from bls.words.whole_texts import TextFilter


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        is_filtering = triton_io.boolean_parameter(args, "sensitive_words", default=True)
        self._filter = TextFilter(words_beside(triton_io.repository(args)) if is_filtering else None)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(requests, SENSITIVE_WORDS_CONTRACT, self._filter.answer)
