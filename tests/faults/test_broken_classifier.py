"""A classifier that is broken on the disk: the server starts without it, and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bls.contract import ROUTER, TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER
from tests.server import sleeper
from tests.server.serving import ROOT, running_server

pytestmark = pytest.mark.server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The classifier's models as they are, beside a model that has the router's name and needs nothing."""
    models = tmp_path / "model_repository"
    for model in (TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER):
        shutil.copytree(ROOT / "model_repository" / model, models / model)
    engine = Path("engines") / "built" / "classifier"
    shutil.copytree(ROOT / engine, tmp_path / engine, copy_function=os.link)
    (models / ROUTER / "1").mkdir(parents=True)
    (models / ROUTER / "config.pbtxt").write_text(sleeper.config(ROUTER, instances=1))
    (models / ROUTER / "1" / "model.py").write_text(sleeper.CODE)
    return models


@pytest.mark.parametrize(
    ("file", "content", "failed"),
    [("model.onnx", bytes(range(256)) * 4, TEXT_CLASSIFIER), ("tokenizer.model", b"{", TEXT_TOKENIZER)],
)
def test_the_server_starts_without_it_and_says_so(tmp_path, repository, file, content, failed):
    broken = tmp_path / "engines" / "built" / "classifier" / file
    broken.unlink()  # a link to what others use
    broken.write_bytes(content)
    (tmp_path / "server").mkdir()
    with running_server(tmp_path / "server", repository) as server:
        said = server.console.read_text()
        assert f"warning: model {failed} failed to load: " in said
        assert f"  without  {TEXT_TOKENIZER}, {TEXT_CLASSIFIER}, {TEXT_PIPELINE}: model {failed} failed" in said
        assert f"model {failed} failed to load: " in server.left_out
        assert sleeper.sleep(server, 0.0, ROUTER) == [0.0]
        port = server.http_url.rpartition(":")[2]
        doctor = [ROOT / "scripts" / "doctor", f"--http-port={port}", f"--metrics-url={server.metrics_url}"]
        found = subprocess.run([*doctor, "--seconds=1"], capture_output=True, text=True, timeout=60).stdout
        assert "classifier_left_out" in found
