"""The small engine, where Python drives it: on a CPU, or by TensorRT-LLM's LLM API (see configs/).

TensorRT-LLM's own backend (config.pbtxt) doesn't read this file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engines.triton.triton_model import EngineModel


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        self.model = EngineModel(args)

    def execute(self, requests: Sequence[Any]) -> None:
        self.model.execute(requests)

    def finalize(self) -> None:
        self.model.close()
