"""The small engine, where Python drives it: on a CPU, by TensorRT-LLM's LLM API, or on other machines (see
configs/).

TensorRT-LLM's own backend (config.pbtxt) doesn't read this file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engines.model import engine_model


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        self.model = engine_model(args)

    def execute(self, requests: Sequence[Any]) -> None:
        self.model.execute(requests)

    def finalize(self) -> None:
        self.model.close()
