"""Whether this machine can build an engine: TensorRT-LLM's programs, a GPU, and a GPU that knows the quantisation."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engines import nvidia_smi
from engines.tensorrt_llm import flags
from engines.tensorrt_llm.commands import Command
from engines.tensorrt_llm.spec import GpuSpec
from engines.tensorrt_llm.suitability import Capability, lacks

_ADVICE = "build in NVIDIA's image tritonserver:25.12-trtllm-python-py3, or see the commands with --dry-run"


class BadMachine(Exception):
    """Nothing can be built here; the message is one line that says what is missing and what to do."""


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine, named as nvidia-smi names it."""

    name: str
    capability: Capability


@dataclass(frozen=True)
class Machine:
    """What an engine is bound to: it runs on no other version of TensorRT-LLM, nor on another kind of GPU. Each is ""
    where it can't be told."""

    version: str
    gpu: str

    def suits(self, other: Machine) -> bool:
        """Whether an engine that was built on `other` runs here, as far as can be told."""
        return self.version in ("", other.version) and self.gpu in ("", other.gpu)


def here() -> Machine:
    """This machine."""
    found = _gpus()
    return Machine(installed_version(), found[0].name if found else "")


def installed_version() -> str:
    """Of TensorRT-LLM; "" if it isn't installed for this Python."""
    try:
        return metadata.version("tensorrt_llm")
    except metadata.PackageNotFoundError:
        return ""


def check(spec: GpuSpec) -> None:
    """Raises BadMachine if no engine like that can be built here."""
    version = installed_version()
    if shutil.which(flags.BUILD) is None:
        if version and not _is_known(version):
            gone = f"TensorRT-LLM {version} has no {flags.BUILD}"
            raise BadMachine(f"{gone}: serve the model without an engine (--for llmapi), or {_ADVICE}")
        raise BadMachine(f"{flags.BUILD} is not here: {_ADVICE}")
    if version and not _is_known(version):
        raise BadMachine(f"TensorRT-LLM is {version} here; engines can be built with {' and '.join(flags.versions())}")
    _check_gpus(spec, _gpus())
    if spec.is_calibrated and not _is_data_set(spec.calib_dataset):
        raise BadMachine(f"calib_dataset is {spec.calib_dataset!r}; it must be cnn_dailymail, pileval or a folder")


def _is_data_set(name: str) -> bool:
    """Whether quantize.py takes it: get_calib_dataloader of tensorrt_llm/quantization/quantize_by_modelopt.py."""
    return "cnn_dailymail" in name or name == "pileval" or Path(name).is_dir()


def check_scripts(commands: Sequence[Command]) -> None:
    """Raises BadMachine if one of TensorRT-LLM's scripts isn't where it is sought."""
    for command in commands:
        script = Path(command.start[-1])
        if command.program != flags.BUILD and not script.is_file():
            raise BadMachine(f"{script} is missing: name the folder of TensorRT-LLM's examples with --examples")


def _is_known(version: str) -> bool:
    return any(version == known or version.startswith(f"{known}.") for known in flags.versions())


def _check_gpus(spec: GpuSpec, gpus: Sequence[Gpu]) -> None:
    if not gpus:
        raise BadMachine("there is no GPU (nvidia-smi shows none): build where the engine will run, with --gpus all")
    for gpu in gpus:
        if missing := lacks(gpu.capability, spec.quantisation):
            raise BadMachine(f'quantisation is "{spec.quantisation}"; {gpu.name} {missing}')


def _gpus() -> list[Gpu]:
    try:
        rows = nvidia_smi.query("name", "compute_cap")
    except (OSError, subprocess.SubprocessError):
        return []
    return [_gpu(row[0], row[-1]) for row in rows]


def _gpu(name: str, capability: str) -> Gpu:
    major, _, minor = capability.partition(".")
    return Gpu(name, (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0))
