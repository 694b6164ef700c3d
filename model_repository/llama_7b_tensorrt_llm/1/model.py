"""The large engine behind Triton's dynamic batcher, on a CPU. TensorRT-LLM's own backend doesn't read this file."""

from engines.batch_model import BatchModel

PIPELINE = "engines.openvino.pipeline:OpenVinoPipeline"
TIER = "large"


class TritonPythonModel:
    def initialize(self, args):
        self.model = BatchModel(args, PIPELINE, TIER)

    def execute(self, requests):
        self.model.execute(requests)

    def finalize(self):
        self.model.close()
