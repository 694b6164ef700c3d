"""What of `scripts/serve gpu` a CPU can run: real servers as ranks of a stand-in mpirun, the engine a python model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import processes, shared_memory
from scripts.environment import Environment
from tests import gpu_machine
from tests.gpu_machine import GpuMachine
from tests.server.serving import Server

pytestmark = pytest.mark.server

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 0
input [ {{ name: "seconds" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "slept" data_type: TYPE_FP32 dims: [ 1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
MODEL = """
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        # As TensorRT-LLM's backend does, on a rank without metrics too.
        pb_utils.MetricFamily(name="a_total", description="for this test", kind=pb_utils.MetricFamily.COUNTER)
        if os.environ["OMPI_COMM_WORLD_RANK"] in {failing}:
            raise RuntimeError("no memory left on this rank")

    def execute(self, requests):
        answers = []
        for request in requests:
            seconds = pb_utils.get_input_tensor_by_name(request, "seconds").as_numpy()
            time.sleep(float(seconds[0]))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("slept", seconds)]))
        return answers
"""


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """Two GPUs, the set-up's tritonserver, a python model "text", an engine "large" that is a python model as well."""
    setup = Environment()
    machine = gpu_machine.make(tmp_path)
    path = os.pathsep.join(map(str, (machine.programs, setup.venv / "bin", os.environ["PATH"])))
    machine = replace(machine, variables={"PATH": path, "LD_LIBRARY_PATH": os.pathsep.join(map(str, setup.libraries))})
    machine.tritonserver.unlink()
    machine.tritonserver.symlink_to(setup.tritonserver)
    backends = machine.tritonserver.parent.parent / "backends"
    shutil.rmtree(backends)
    backends.symlink_to(setup.backends)
    machine.add_engine("large", ranks=2)
    write_model(machine, "text")
    write_model(machine, "large")
    return machine


def write_model(machine: GpuMachine, name: str, failing: tuple[str, ...] = ()) -> None:
    folder = machine.repository / name
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs" / "gpu.pbtxt").write_text(CONFIG.format(name=name))
    (folder / "1" / "model.py").write_text(MODEL.format(failing=failing))


def sleep(server: Server, model: str, seconds: float) -> list[float]:
    body = {"inputs": [{"name": "seconds", "shape": [1], "datatype": "FP32", "data": [seconds]}]}
    request = urllib.request.Request(f"{server.http_url}/v2/models/{model}/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["outputs"][0]["data"]


def test_the_first_rank_serves_and_drains_while_the_other_only_loads_the_engine(machine):
    with machine.running("--world-size=2") as server, ThreadPoolExecutor() as pool:
        left = gpu_machine.count_left(server.server_pid)
        assert sleep(server, "large", 0.25) == [0.25]
        (worker,) = (pid for pid in processes.tree(server.supervisor_pid) if "--allow-http=false" in words(pid))
        assert [processes.stub_model(pid) for pid in processes.tree(worker)][1:] == ["large"]
        answer = pool.submit(sleep, server, "text", 5.0)  # longer than mpirun bears after a SIGTERM
        time.sleep(1.0)
        server.process.send_signal(signal.SIGTERM)
        assert answer.result() == [5.0]
        assert server.wait() == 0
        assert left() == 0
        assert not list(shared_memory.FOLDER.glob(f"{shared_memory.PREFIX}{server.supervisor_pid}_*"))


def words(pid: int) -> list[str]:
    """The command line of a server; mpirun's and a shell's, which hold the servers' own, are none."""
    found = processes.command(pid)
    return found if found[0].endswith("tritonserver") else []


def test_an_engine_that_fails_on_another_rank_is_named_with_that_rank_and_the_reason(machine):
    write_model(machine, "large", failing=("1",))
    with machine.launched("--world-size=2") as launch:
        assert launch.wait() == 3
    said = launch.console.read_text()
    assert "error: model large failed to load on rank 1: RuntimeError: no memory left on this rank" in said
    assert not list(shared_memory.FOLDER.glob(f"{shared_memory.PREFIX}{launch.process.pid}_*"))
