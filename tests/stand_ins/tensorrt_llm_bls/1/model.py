"""What NVIDIA's tensorrt_llm_bls does with a stream: one call to the tokenizer, one to the engine, and one to the
detokenizer for each response."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def tensors_of(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def call(model, outputs, tensors):
    inputs = [pb_utils.Tensor(name, array) for name, array in tensors.items()]
    return pb_utils.InferenceRequest(model_name=model, inputs=inputs, requested_output_names=outputs)


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.engine = parameters["tensorrt_llm_model_name"]["string_value"]

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            for piece in self.pieces(given):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", piece)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def pieces(self, given):
        tokenizer = {"QUERY": given["text_input"], "REQUEST_OUTPUT_LEN": given["max_tokens"]}
        encoded = tensors_of(call("preprocessing", ["INPUT_ID", "OUT_END_ID", "OUT_PAD_ID"], tokenizer).exec())
        ids = encoded["INPUT_ID"]
        engine = {
            "input_ids": ids,
            "input_lengths": np.array([[ids.shape[1]]], np.int32),
            "request_output_len": given["max_tokens"],
            "min_tokens": given["min_tokens"],
            "end_id": encoded["OUT_END_ID"],
            "pad_id": encoded["OUT_PAD_ID"],
            "streaming": given["stream"],
        }
        for response in call(self.engine, ["output_ids", "sequence_length"], engine).exec(decoupled=True):
            found = tensors_of(response)
            if found:
                words = {"TOKENS_BATCH": found["output_ids"], "SEQUENCE_LENGTH": found["sequence_length"]}
                yield tensors_of(call("postprocessing", ["OUTPUT"], words).exec())["OUTPUT"]
