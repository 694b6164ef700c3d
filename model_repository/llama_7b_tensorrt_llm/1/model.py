"""The large engine behind Triton's dynamic batcher, where Python drives it: on a CPU, or by TensorRT-LLM's LLM API.

TensorRT-LLM's own backend (config.pbtxt) doesn't read this file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engines.triton.batch_model import BatchModel

TIER = "large"


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        self.model = BatchModel(args, TIER)

    def execute(self, requests: Sequence[Any]) -> None:
        self.model.execute(requests)

    def finalize(self) -> None:
        self.model.close()
