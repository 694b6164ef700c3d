"""The small engine on a CPU. A GPU's engine is TensorRT-LLM's own backend and doesn't read this file."""

from engines.triton_model import EngineModel

PIPELINE = "engines.openvino.pipeline:OpenVinoPipeline"


class TritonPythonModel:
    def initialize(self, args):
        self.model = EngineModel(args, PIPELINE)

    def execute(self, requests):
        self.model.execute(requests)

    def finalize(self):
        self.model.close()
