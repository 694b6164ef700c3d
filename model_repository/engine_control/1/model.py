"""Sends an engine the `stop` request of a running one. One at a time: see config.pbtxt."""

from collections.abc import Mapping, Sequence
from typing import Any

from bls import contract, triton_io
from engines.triton.control import stop


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        self.models = triton_io.Models()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(
            requests, contract.ENGINE_CONTROL_CONTRACT, lambda inputs, requested: stop(self.models, inputs)
        )
