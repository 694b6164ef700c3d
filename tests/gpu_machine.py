"""A machine with GPUs, as far as scripts/serve looks: NVIDIA's image and its programs are those of tests/stand_ins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.bench import local_server
from scripts.bench.local_server import Launch, Server
from scripts.host import processes
from scripts.server.tritonserver import SHM_VARIABLE

STAND_INS = Path(__file__).parent / "stand_ins"
CONFIG = """
name: "{name}"
backend: "{backend}"
max_batch_size: 0
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
"""
PARAMETER = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}\n'


@dataclass(frozen=True)
class GpuMachine:
    """Everything lies in `folder`; `launched` and `running` are local_server.py's, with `serve gpu` on it."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def repository(self) -> Path:
        return self.folder / "models"

    @property
    def tritonserver(self) -> Path:
        return self.folder / "image" / "bin" / "tritonserver"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    def env(self, **behaviours: str) -> dict[str, str]:
        """`behaviours` by rank ("rank0"), see tests/stand_ins/tritonserver.py."""
        by_rank = {rank.removeprefix("rank"): behaviour for rank, behaviour in behaviours.items()}
        variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        stand_in = {"STAND_IN": json.dumps(by_rank), "STAND_IN_FOLDER": str(self.folder)}
        return {**variables, "PATH": path, **stand_in, **self.variables}

    def add_model(self, name: str, backend: str = "python", count: int = 1, **parameters: str) -> None:
        (self.repository / name / "1").mkdir(parents=True)
        entries = "".join(PARAMETER.format(key, value) for key, value in parameters.items())
        config = CONFIG.format(name=name, backend=backend, count=count) + entries
        (self.repository / name / "config.pbtxt").write_text(config)

    def add_engine(self, name: str, ranks: int = 1, count: int = 1, **parameters: str) -> Path:
        """A model of the TensorRT-LLM backend, and its built engine."""
        engine = self.folder / "engines" / name / "tensorrt_llm"
        engine.mkdir(parents=True)
        mapping = {"world_size": ranks, "tp_size": ranks, "pp_size": 1}
        (engine / "config.json").write_text(json.dumps({"pretrained_config": {"mapping": mapping}}))
        for rank in range(ranks):
            (engine / f"rank{rank}.engine").touch()
        self.add_model(name, "tensorrtllm", count, gpt_model_path=str(engine), **parameters)
        return engine

    def launched(self, *flags: str, **behaviours: str) -> AbstractContextManager[Launch]:
        flags = (f"--tritonserver={self.tritonserver}", *flags)
        return local_server.launched(self.folder, self.repository, *flags, target="gpu", env=self.env(**behaviours))

    def running(self, *flags: str, **behaviours: str) -> AbstractContextManager[Server]:
        flags = (f"--tritonserver={self.tritonserver}", *flags)
        return local_server.running_server(
            self.folder, self.repository, *flags, target="gpu", env=self.env(**behaviours)
        )


def make(folder: Path, gpus: int = 2) -> GpuMachine:
    """A machine with so many GPUs, and a repository with one python model, "text"."""
    machine = GpuMachine(folder)
    machine.programs.mkdir()
    machine.tritonserver.parent.mkdir(parents=True)
    for backend in ("python", "tensorrtllm"):
        (folder / "image" / "backends" / backend).mkdir(parents=True)
    machine.tritonserver.symlink_to(STAND_INS / "tritonserver.py")
    (machine.programs / "mpirun").symlink_to(STAND_INS / "mpirun.py")
    (machine.programs / "trtllm-llmapi-launch").symlink_to(STAND_INS / "trtllm-llmapi-launch")
    names = "".join("NVIDIA H200\\n" for _ in range(gpus))
    _write_program(machine.programs / "nvidia-smi", f"printf '{names}'")
    machine.add_model("text")
    return machine


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def count_left(server_pid: int) -> Callable[[], int]:
    """Counts what still runs of the server with that first rank; to be made while it runs."""
    entries = (entry.partition("=") for entry in Path(f"/proc/{server_pid}/environ").read_text().split("\0"))
    marker = next(value for name, _, value in entries if name == SHM_VARIABLE)
    return lambda: sum(map(processes.is_alive, processes.with_variable(SHM_VARIABLE, marker)))
