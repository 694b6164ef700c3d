"""What of `scripts/serve gpu` a CPU can run: real servers as ranks of a stand-in mpirun, the engine a python model."""

from __future__ import annotations

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.environment import Environment
from scripts.host import processes, shared_memory
from tests import gpu_machine
from tests.gateway.gateway_process import ask
from tests.gpu_machine import GpuMachine
from tests.server import sleeper
from tests.server.serving import free_ports
from tests.server.sleeper import sleep
from tests.waiting import eventually

pytestmark = pytest.mark.server

# As TensorRT-LLM's backend does, on a rank without metrics too; the other ranks wait for one that fails.
INITIALIZE = """
    def initialize(self, args):
        pb_utils.MetricFamily(name="a_total", description="for this test", kind=pb_utils.MetricFamily.COUNTER)
        if os.environ["OMPI_COMM_WORLD_RANK"] in {failing}:
            raise RuntimeError("no memory left on this rank")
        if {failing}:
            time.sleep(600)
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
    (folder / "configs" / "gpu.pbtxt").write_text(sleeper.config(name, instances=1))
    (folder / "1" / "model.py").write_text(sleeper.CODE + INITIALIZE.format(failing=failing))


def test_the_first_rank_serves_and_drains_while_the_other_only_loads_the_engine(machine):
    with machine.running("--world-size=2") as server, ThreadPoolExecutor() as pool:
        left = gpu_machine.count_left(server.server_pid)
        assert sleep(server, 0.25, "large") == [0.25]
        (worker,) = (pid for pid in processes.tree(server.supervisor_pid) if "--allow-http=false" in words(pid))
        assert [processes.stub_model(pid) for pid in processes.tree(worker)][1:] == ["large"]
        answer = pool.submit(sleep, server, 5.0, "text")  # longer than mpirun bears after a SIGTERM
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


def test_a_gateway_stands_beside_it_too(machine):
    (port,) = free_ports(1)
    machine.add_model("llm_router")
    write_model(machine, "llm_router")
    with machine.running("--world-size=2", f"--gateway-port={port}") as server:
        assert eventually(lambda: is_ready(port))
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert not is_ready(port)


def is_ready(port: int) -> bool:
    try:
        return ask(port, "GET", "/ready", None, {}).status == 200
    except OSError:
        return False
