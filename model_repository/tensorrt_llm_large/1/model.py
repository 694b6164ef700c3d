"""The large engine, where Python drives it: on a CPU, or by TensorRT-LLM's LLM API (see configs/).

TensorRT-LLM's own backend (config.pbtxt) doesn't read this file.
"""

from engines.triton.triton_model import EngineModel


class TritonPythonModel:
    def initialize(self, args):
        self.model = EngineModel(args)

    def execute(self, requests):
        self.model.execute(requests)

    def finalize(self):
        self.model.close()
