from __future__ import annotations

from pathlib import Path

import pytest

from scripts.host.preflight import Refused
from scripts.server import gpu_devices


@pytest.fixture
def devices(tmp_path: Path, monkeypatch) -> Path:
    """A /dev without GPUs, on a machine without nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("bin", "dev"):
        (tmp_path / name).mkdir()
    return tmp_path / "dev"


def add_nvidia_smi(devices: Path, script: str) -> None:
    program = devices.parent / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_gpus_are_those_of_nvidia_smi(devices):
    add_nvidia_smi(devices, 'echo "NVIDIA H200"; echo "NVIDIA H200"')
    assert gpu_devices.visible(devices) == 2


def test_without_nvidia_smi_the_device_files_are_counted(devices):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (devices / name).touch()
    assert gpu_devices.visible(devices) == 2


@pytest.mark.parametrize(
    ("chosen", "count"),
    [("0", 1), ("1,0", 2), ("GPU-8a2f, GPU-77b1", 2), ("0,1,2,3", 3), ("", 0), ("-1", 0), ("0,-1,1", 1), ("1,,2", 1)],
)
def test_cuda_visible_devices_counts_as_cuda_reads_it(devices, monkeypatch, chosen, count):
    for number in range(3):
        (devices / f"nvidia{number}").touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert gpu_devices.visible(devices) == count


def test_a_driver_that_fails_is_refused_in_its_own_words(devices):
    add_nvidia_smi(devices, 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    with pytest.raises(Refused, match="nvidia-smi fails: Failed to initialize NVML: Driver/library version mismatch"):
        gpu_devices.visible(devices)


def test_no_gpu_is_refused_with_what_to_do(devices, monkeypatch):
    with pytest.raises(Refused, match=r"there is no GPU here \(no nvidia-smi, .*--gpus all.*scripts/serve cpu"):
        gpu_devices.check(gpu_devices.visible(devices), 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(Refused, match="CUDA_VISIBLE_DEVICES is ''"):
        gpu_devices.check(gpu_devices.visible(devices), 1)


def test_too_few_gpus_are_refused_with_both_numbers():
    gpu_devices.check(2, 2)
    with pytest.raises(Refused, match="4 GPUs are needed, but there are 2"):
        gpu_devices.check(2, 4)
