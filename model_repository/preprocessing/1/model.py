"""Text to token ids. See bls/tokens/preprocessing.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls import triton_io
from bls.contract import PREPROCESSING_CONTRACT
from bls.tokens import preprocessing
from bls.tokens.tier_tokenizers import load_tiers


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        tiers = load_tiers(triton_io.repository(args))
        preprocessing.ensure_tables(tiers)
        self._preprocessor = preprocessing.Preprocessor(
            tiers,
            add_special_tokens=triton_io.boolean_parameter(args, "add_special_tokens", default=True),
            max_characters_per_token=int(triton_io.parameters(args)["max_characters_per_token"]),
            default_output_len=int(triton_io.parameters(args)["default_request_output_len"]),
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(requests, PREPROCESSING_CONTRACT, self._preprocessor.answer)
