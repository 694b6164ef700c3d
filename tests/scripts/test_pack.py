"""scripts/pack: what lies in the folder. tests/server/test_pack.py serves it."""

import argparse
import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bls.paths import MODEL_REPOSITORY, PACKED, ROOT
from scripts import pack
from scripts.host.preflight import Refused


def options(folder, **changes):
    given = {"target": "cpu", "without_engines": True, "engines_at": pack.ENGINES, "skip_model": []}
    return argparse.Namespace(folder=folder, **(given | changes))


@pytest.mark.parametrize(
    ("target", "backend"), [("cpu", "python"), ("llmapi", "python"), ("tensorrt_llm", "tensorrtllm")]
)
def test_the_chosen_config_is_the_only_one(tmp_path, target, backend):
    models = pack.pack(options(tmp_path / "m", target=target))
    config = (tmp_path / "m" / "tensorrt_llm_large" / "config.pbtxt").read_text()
    assert f'backend: "{backend}"' in config
    assert not list((tmp_path / "m").glob("*/configs"))
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(models)


def test_engines_of_tensorrt_llm_are_looked_for_where_they_will_lie(tmp_path):
    pack.pack(options(tmp_path / "m", target="tensorrt_llm", engines_at="/mnt/engines/"))
    config = (tmp_path / "m" / "tensorrt_llm_small" / "config.pbtxt").read_text()
    assert '"/mnt/engines/small/tensorrt_llm"' in config and '"/engines/' not in config


def test_each_model_finds_the_packed_code_and_nothing_else(tmp_path):
    pack.pack(options(tmp_path / "m"))
    entries = list((tmp_path / "m").glob("*/1/model.py"))
    assert len(entries) > 8
    for entry in entries:
        assert isinstance(ast.parse(entry.read_text()).body[0].value, ast.Constant)  # It still begins with what it is.
    stub = "from types import ModuleType; sys.modules['triton_python_backend_utils'] = ModuleType('stub')"
    code = f"import runpy, sys; {stub}; runpy.run_path(sys.argv[1]); import bls; print(bls.__file__)"
    entry = tmp_path / "m" / "sensitive_words" / "1" / "model.py"
    ran = subprocess.run([sys.executable, "-c", code, entry], cwd="/", env={}, capture_output=True, text=True)
    assert ran.stdout.strip() == str(tmp_path / "m" / PACKED / "bls" / "__init__.py"), ran.stderr


def test_a_link_that_gives_a_model_a_second_name_is_packed(tmp_path):
    shutil.copytree(MODEL_REPOSITORY, tmp_path / "models")
    (tmp_path / "models" / "ensemble").symlink_to("llm_router")
    pack.pack(options(tmp_path / "m"), ROOT, tmp_path / "models")
    assert (tmp_path / "m" / "ensemble" / "1" / "model.py").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skip_model": ["llm_routr"]}, "--skip-model llm_routr: there is no such model; there are engine_control"),
        ({"skip_model": ["llm_router"]}, "llm_router cannot be left out"),
    ],
)
def test_what_cannot_be_packed_is_refused_and_nothing_is_left(tmp_path, changes, message):
    with pytest.raises(Refused, match=message):
        pack.pack(options(tmp_path / "m", **changes))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["two words", "it's", "a$b", "c;d"])
def test_a_path_that_the_python_backend_would_take_apart_is_refused(tmp_path, name):
    with pytest.raises(Refused, match=r"^DIR .* move it to a path without blanks, quotes and signs of the shell"):
        pack.pack(options(tmp_path / name / "m"))
    assert os.listdir(tmp_path) == []


def test_a_path_that_the_python_backend_could_not_read_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"^DIR .*/模型 is not ASCII"):
        pack.pack(options(tmp_path / "模型"))


@pytest.mark.parametrize("parent", ["/proc", "/dev/null"])
def test_a_place_where_nothing_can_be_written_is_refused(parent):
    with pytest.raises(Refused, match=f"^{parent}/m cannot be written: [A-Z]"):
        pack.pack(options(Path(parent) / "m"))


def test_a_disk_that_fills_up_is_refused_with_the_first_files_reason(tmp_path, monkeypatch):
    def full(source, target, **_):
        raise shutil.Error([(source, target, "[Errno 28] No space left on device")])

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(Refused, match=r"/m cannot be written: \[Errno 28\] No space left on device$"):
        pack.pack(options(tmp_path / "m"))


def test_a_folder_that_exists_is_left_alone(tmp_path):
    (tmp_path / "m").mkdir()
    with pytest.raises(Refused, match="exists, with what you may have edited in it"):
        pack.pack(options(tmp_path / "m"))
