"""engines/openvino/model_path.py: what is said of a damaged file, and that one that may only be read is copied."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bls import manifest
from bls.manifest import BadManifest
from bls.paths import ROOT
from bls.tokens import gguf
from engines.openvino import model_path
from engines.openvino.model_path import readable_model

BUILT = ROOT / "engines" / "built" / "small"
WEIGHTS = next(BUILT.glob("*.gguf"), None)

pytestmark = pytest.mark.skipif(WEIGHTS is None, reason="no GGUF engine is built: scripts/install")


def made_of(path):
    folder = path.parent
    return SimpleNamespace(
        weights_path=path,
        folder=folder,
        file=folder / "engine.json",
        builder="gguf",
        command=manifest.build_command(folder),
    )


def test_the_file_that_is_built_is_whole():
    gguf.check_size(WEIGHTS)
    with readable_model(made_of(WEIGHTS)) as path:
        assert Path(path).samefile(WEIGHTS)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_file_that_is_cut_off_is_named_with_the_command_that_builds_it_again(tmp_path, share):
    folder = tmp_path / "small"
    folder.mkdir()
    cut = folder / "model.gguf"
    shutil.copy(WEIGHTS, cut)
    os.truncate(cut, int(WEIGHTS.stat().st_size * share))
    with (
        pytest.raises(BadManifest, match=r"model\.gguf: .*`python -m scripts\.build_engines small --force`"),
        readable_model(made_of(cut)),
    ):
        pass


def test_one_byte_less_than_the_last_tensor_needs_is_too_little(tmp_path):
    cut = tmp_path / "model.gguf"
    shutil.copy(WEIGHTS, cut)
    os.truncate(cut, WEIGHTS.stat().st_size - 64)  # The tail may be filled up to the alignment of 32 bytes.
    with pytest.raises(gguf.BadGguf, match="it is cut off"):
        gguf.check_size(cut)


def test_a_file_that_may_only_be_read_is_copied_for_loading(tmp_path, monkeypatch):
    monkeypatch.setattr(model_path, "_may_be_written", lambda path: False)
    with readable_model(made_of(WEIGHTS)) as path:
        assert Path(path) != WEIGHTS
        assert os.access(path, os.W_OK)
        assert subprocess.run(["cmp", path, WEIGHTS]).returncode == 0
    assert not Path(path).exists()


def test_a_copy_without_room_says_where_it_is_needed(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_path, "_may_be_written", lambda path: False)
    monkeypatch.setattr(shutil, "copyfile", full)
    with (
        pytest.raises(BadManifest, match=r"may only be read.* needs \d+ MiB in .*No space left.*TMPDIR"),
        readable_model(made_of(WEIGHTS)),
    ):
        pass


def test_a_broken_engine_json_is_told_with_the_command_that_builds_it_again(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    for text in ("{", "{}", '{"name": 3}'):
        (folder / manifest.FILE_NAME).write_text(text)
        with pytest.raises(BadManifest, match=r"engine\.json: .*`python -m scripts\.build_engines small`"):
            manifest.load(folder)
