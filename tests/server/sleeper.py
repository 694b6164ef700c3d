"""A python model that sleeps as long as a request asks for: a server whose requests in flight a test can count on."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.server.serving import Server

_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 0
input [ {{ name: "seconds" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "slept" data_type: TYPE_FP32 dims: [ 1 ] }} ]
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
"""
CODE = """
import os
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils

BEGUN = Path(__file__).with_name("begun")


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            seconds = pb_utils.get_input_tensor_by_name(request, "seconds").as_numpy()
            with BEGUN.open("a") as begun:
                begun.write("x")
            time.sleep(float(seconds[0]))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("slept", seconds)]))
        return answers
"""


def begun(repository: Path, model: str = "sleeper") -> int:
    """How many requests the model has begun with so far."""
    file = repository / model / "1" / "begun"
    return file.stat().st_size if file.exists() else 0


def config(name: str, instances: int) -> str:
    return _CONFIG.format(name=name, instances=instances)


def request_body(seconds: float) -> bytes:
    """Of a request that takes so long."""
    return json.dumps({"inputs": [{"name": "seconds", "shape": [1], "datatype": "FP32", "data": [seconds]}]}).encode()


def sleep(server: Server, seconds: float, model: str = "sleeper") -> list[float]:
    request = urllib.request.Request(f"{server.http_url}/v2/models/{model}/infer", request_body(seconds))
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["outputs"][0]["data"]
