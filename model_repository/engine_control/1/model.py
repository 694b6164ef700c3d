"""Sends an engine the `stop` request of a running one, and says which model it has. One at a time: see config.pbtxt."""

from collections.abc import Mapping, Sequence
from typing import Any

from bls import contract, triton_io
from engines.triton.control import Control


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        self.control = Control(triton_io.Models(), triton_io.repository(args))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(requests, contract.ENGINE_CONTROL_CONTRACT, self.control.answer)
