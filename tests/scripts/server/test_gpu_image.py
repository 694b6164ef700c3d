from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from bls.paths import ROOT
from scripts.environment import SetupFailed
from scripts.host.progress import Progress
from scripts.server.gpu_image import Image


def test_the_images_own_python_path_stays_behind_this_repository(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/opt/of/the/image")
    assert Image().variables()["PYTHONPATH"] == f"{ROOT}:/opt/of/the/image"
    monkeypatch.delenv("PYTHONPATH")
    assert Image().variables()["PYTHONPATH"] == str(ROOT)


def test_word_lists_that_cannot_be_compiled_are_fatal_only_where_none_were_compiled_before(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    image = Image(root=tmp_path)  # it has no scripts.words
    said = io.StringIO()
    with pytest.raises(SetupFailed, match=r"words/ cannot be compiled: .*scripts"):
        image.compile_words(Progress(said))
    (tmp_path / "words" / "deny").mkdir(parents=True)
    (tmp_path / "words" / "compiled.bin").touch()
    os.utime(tmp_path / "words" / "compiled.bin", (0, 0))
    (tmp_path / "words" / "categories.toml").touch()
    image.compile_words(Progress(said))
    assert "warning: words/ cannot be compiled: " in said.getvalue()
    assert "the previously compiled lists stay in use" in said.getvalue()


def test_the_image_gets_the_versions_that_cpus_are_served_with():
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w-]+==[\w.]+", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements-gpu.txt") and pins("requirements-gpu.txt") <= pins("requirements.txt")
