from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bls.paths import ROOT
from scripts.host import interpreter

HOST = ROOT / "scripts" / "host"


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12)])
def test_a_python_with_a_stub_and_a_numpy_is_taken(version):
    assert interpreter.version_refusal(version) is None


@pytest.mark.parametrize(("version", "why"), [((3, 9), "too old"), ((3, 13), "numpy 1.26"), ((4, 0), "numpy 1.26")])
def test_any_other_python_is_refused_with_the_ones_that_would_do(version, why):
    refusal = interpreter.version_refusal(version)
    assert why in refusal
    assert "3.10, 3.11 or 3.12" in refusal


@pytest.mark.parametrize(
    ("system", "machine", "c_library", "named"),
    [
        ("Linux", "aarch64", "glibc 2.39", "aarch64"),
        ("Darwin", "x86_64", None, "Darwin"),
        ("Linux", "x86_64", "glibc 2.31", "glibc 2.31 is too old"),
        ("Linux", "x86_64", None, "not glibc"),
    ],
)
def test_a_machine_without_a_server_package_is_refused_by_name(system, machine, c_library, named):
    assert named in interpreter.machine_refusal(system, machine, c_library)


@pytest.mark.parametrize("c_library", ["glibc 2.35", "glibc 2.41", "glibc 3.0"])
def test_a_machine_with_a_server_package_is_taken(c_library):
    assert interpreter.machine_refusal("Linux", "x86_64", c_library) is None


def test_a_missing_part_is_refused_with_the_package_that_brings_it():
    assert "apt install libpython3.11)" in interpreter.parts_refusal((3, 11), None, True)
    assert "apt install python3.12-venv)" in interpreter.parts_refusal((3, 12), "/lib/libpython3.12.so.1.0", False)
    assert interpreter.parts_refusal((3, 12), "/lib/libpython3.12.so.1.0", True) is None


def test_a_module_whose_folder_was_left_empty_is_missing(tmp_path, monkeypatch):
    (tmp_path / "hollow").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert interpreter.has_modules("venv", "ensurepip")
    assert not interpreter.has_modules("venv", "hollow")
    assert not interpreter.has_modules("venv", "a_module_that_is_missing")


def test_finds_the_shared_library_of_this_python():
    library = Path(interpreter.find_libpython())
    assert library.name == "libpython{}.{}.so.1.0".format(*sys.version_info[:2])
    assert library.is_file()


def choose(tmp_path: Path, python: Path) -> subprocess.CompletedProcess[str]:
    """What find_python.sh makes of PYTHON=python."""
    script = f'root="{ROOT}"; . "{HOST}/find_python.sh"; echo "$python"'
    return subprocess.run(
        ["sh", "-c", script], env={"PYTHON": str(python), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )


def fake_python(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "python3"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_python_that_was_asked_for_is_taken(tmp_path):
    python = fake_python(tmp_path, "exit 0")
    assert choose(tmp_path, python).stdout == f"{python}\n"


def test_a_python_that_is_not_there_is_refused_in_one_line(tmp_path):
    found = choose(tmp_path, tmp_path / "python3")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert "there is no such program" in found.stderr


def test_the_python_that_was_asked_for_is_refused_in_one_line_rather_than_replaced(tmp_path):
    python = fake_python(tmp_path, "echo this one is a toy; exit 1")
    found = choose(tmp_path, python)
    assert (found.returncode, found.stdout, found.stderr) == (2, "", f"error: {python}: this one is a toy\n")


def test_a_gpu_server_brings_what_a_cpu_server_is_refused_for_the_lack_of(monkeypatch):
    monkeypatch.setattr(interpreter.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(interpreter, "has_modules", lambda *names: False)
    monkeypatch.setattr(interpreter.sys, "version_info", (3, 14, 0))
    assert "aarch64" in interpreter.refusal()
    assert interpreter.refusal("gpu") is None
    monkeypatch.setattr(interpreter.sys, "version_info", (3, 8, 0))
    assert "too old" in interpreter.refusal("gpu")
