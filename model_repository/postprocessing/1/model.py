"""Token ids to text. See bls/tokens/postprocessing.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls import triton_io
from bls.contract import POSTPROCESSING_CONTRACT
from bls.tokens.postprocessing import Postprocessor
from bls.tokens.tier_tokenizers import load_tiers


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        tiers = load_tiers(triton_io.repository(args))
        skips = triton_io.boolean_parameter(args, "skip_special_tokens", default=True)
        self._postprocessor = Postprocessor(tiers, skip_special_tokens=skips)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(requests, POSTPROCESSING_CONTRACT, self._postprocessor.answer)
