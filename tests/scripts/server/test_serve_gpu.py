"""scripts/serve gpu to its end, with tests/stand_ins for mpirun, tritonserver and nvidia-smi."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from scripts import serve
from scripts.host import processes
from tests import gpu_machine
from tests.gpu_machine import GpuMachine
from tests.waiting import eventually


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    return gpu_machine.make(tmp_path)


@pytest.fixture
def over_two_gpus(machine: GpuMachine) -> GpuMachine:
    machine.add_engine("large", ranks=2)
    return machine


def command_line(pid: int) -> list[str]:
    return processes.command(pid)[:-1]


def test_one_gpu_is_served_by_one_process_without_mpirun(machine):
    machine.add_engine("small")
    with machine.running() as server:
        assert str(machine.tritonserver) in command_line(server.server_pid)
        assert [processes.command(pid)[1] for pid in processes.tree(server.supervisor_pid)][1:] == [
            str(machine.tritonserver)
        ]
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert "2 of 2 models ready" in server.console.read_text()


def test_the_first_rank_drains_before_the_others_end(over_two_gpus):
    with over_two_gpus.running("--world-size=2", rank0="drains") as server:
        left = gpu_machine.count_left(server.server_pid)
        assert left() == 3  # mpirun and two ranks
        first = command_line(server.server_pid)
        assert {"--load-model=large", "--load-model=text"} <= set(first)
        asked_at = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - asked_at >= 3  # mpirun alone kills after two
        assert left() == 0


@pytest.mark.parametrize(
    ("behaviours", "said"),
    [
        ({"rank1": "dies"}, "rank 1 ended with exit status 3"),
        ({"rank1": "leaves"}, "error: tritonserver died: rank 1 has ended"),
    ],
)
def test_all_ranks_end_when_one_does_and_it_is_named(over_two_gpus, behaviours, said):
    with over_two_gpus.running("--world-size=2", "--no-restart", **behaviours) as server:
        left = gpu_machine.count_left(server.server_pid)
        (over_two_gpus.folder / "may-end").touch()
        assert server.wait() == 4
        assert left() == 0
    assert said in server.console.read_text()


def test_nothing_outlives_an_mpirun_that_is_killed(over_two_gpus):
    with over_two_gpus.running("--world-size=2", "--no-restart") as server:
        left = gpu_machine.count_left(server.server_pid)
        mpirun = next(pid for pid in processes.tree(server.supervisor_pid) if "mpirun" in processes.command(pid)[1])
        os.kill(mpirun, signal.SIGKILL)
        assert server.wait() == 4
        assert left() == 0
    assert "error: tritonserver died: mpirun: killed by SIGKILL" in server.console.read_text()


def test_nothing_outlives_a_supervisor_that_is_killed(over_two_gpus):
    with over_two_gpus.running("--world-size=2") as server:
        left = gpu_machine.count_left(server.server_pid)
        os.kill(server.supervisor_pid, signal.SIGKILL)
        server.wait()
        assert eventually(lambda: left() == 0)


def test_a_second_signal_ends_ranks_that_do_not_heed_the_first(over_two_gpus):
    with over_two_gpus.running("--world-size=2", rank0="ignores", rank1="ignores") as server:
        left = gpu_machine.count_left(server.server_pid)
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: "stopping" in server.console.read_text())
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 6
        assert left() == 0


@pytest.mark.parametrize(
    ("behaviours", "said"),
    [
        (
            {"rank0": "fails text"},
            "error: model text failed to load: [TensorRT-LLM][ERROR] Assertion failed: no memory",
        ),
        (
            {"rank1": "fails large"},
            "error: model large failed to load on rank 1: [TensorRT-LLM][ERROR] Assertion failed",
        ),
    ],
)
def test_a_model_that_fails_on_any_rank_ends_the_start_and_is_named(over_two_gpus, behaviours, said):
    with over_two_gpus.launched("--world-size=2", **behaviours) as launch:
        assert launch.wait(150) == 3
    assert said in launch.console.read_text()


def test_a_server_that_dies_under_trtllm_llmapi_launch_is_noticed_though_the_launcher_stays(over_two_gpus):
    add_llmapi_variant(over_two_gpus)
    with over_two_gpus.running("--engine=llmapi", "--world-size=2", "--no-restart", rank0="dies") as server:
        left = gpu_machine.count_left(server.server_pid)
        assert "--model-config-name=llmapi" in command_line(server.server_pid)
        (over_two_gpus.folder / "may-end").touch()
        assert server.wait() == 4
        assert left() == 0


def add_llmapi_variant(machine: GpuMachine) -> None:
    (machine.repository / "large" / "configs").mkdir()
    (machine.repository / "large" / "configs" / "llmapi.pbtxt").write_text(
        gpu_machine.CONFIG.format(name="large", backend="python", count=1)
        + gpu_machine.PARAMETER.format("tensor_parallel_size", 2)
    )


def refused(machine: GpuMachine, monkeypatch, capsys, *flags: str) -> str:
    for name, value in machine.env().items():
        monkeypatch.setenv(name, value)
    arguments = ["gpu", f"--tritonserver={machine.tritonserver}", f"--model-repository={machine.repository}", *flags]
    assert serve.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    return said


def test_a_machine_without_what_is_needed_is_refused_with_advice(over_two_gpus, monkeypatch, capsys):
    def say(*flags: str) -> str:
        return refused(over_two_gpus, monkeypatch, capsys, *flags)

    assert "the engine of large is for 2 GPUs: --world-size=2 serves it" in say()
    assert "the engine of large is for 2 GPUs, --world-size is 3" in say("--world-size=3")
    assert "large has no configs/llmapi.pbtxt" in say("--engine=llmapi")
    add_llmapi_variant(over_two_gpus)
    assert "the engine of large is for 2 GPUs, --world-size is 3" in say("--engine=llmapi", "--world-size=3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "2 GPUs are needed, but there are 1" in say("--world-size=2")
    assert "2 GPUs are needed, but there are 1" in say("--engine=llmapi")
    (over_two_gpus.folder / "engines" / "large" / "tensorrt_llm" / "rank1.engine").unlink()
    assert "lacks rank1.engine of 2: large was not built completely" in say("--world-size=2")
    (over_two_gpus.folder / "engines" / "large" / "tensorrt_llm" / "config.json").unlink()
    assert "holds no engine, which large needs" in say("--world-size=2")
    (over_two_gpus.folder / "image" / "backends" / "tensorrtllm").rmdir()
    assert "has no tensorrtllm backend, which large needs" in say("--world-size=2")
    monkeypatch.setattr("shutil.which", lambda program: None)
    assert "mpirun is missing" in say("--world-size=2")
    over_two_gpus.tritonserver.unlink()
    assert "tritonserver is missing: serve GPUs in the image of the Dockerfile" in say()


def test_a_python_package_that_a_model_imports_and_the_image_lacks_is_named(machine, monkeypatch, capsys):
    machine.add_model("text_classifier_onnx")
    monkeypatch.setattr("scripts.server.gpu_image.PACKAGES", {"text_classifier_onnx": ("no_such_package", "json")})
    said = refused(machine, monkeypatch, capsys)
    assert said == "error: python3 lacks no_such_package: pip install --no-deps -r requirements-gpu.txt\n"
