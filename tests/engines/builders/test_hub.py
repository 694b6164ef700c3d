"""sources.py and huggingface.py of engines/builders/ against a hub on loopback, through scripts/build_engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bls import manifest
from tests import hub_stand_in, huggingface_models

CODE = "import sys; from pathlib import Path; from scripts.build_engines import main; sys.exit(main({!r}, Path({!r})))"


@pytest.fixture
def build(tmp_path):
    """Runs build_engines in a process of its own, since the library reads the hub's address when it is imported."""

    def run(*arguments, status=200):
        model = huggingface_models.write(tmp_path / "Tiny-Chat", eos_token_id=[0, 7])
        with hub_stand_in.serve("owner/Tiny-Chat", model, status) as address:
            cache = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            command = [sys.executable, "-c", CODE.format(list(arguments), str(tmp_path / "built"))]
            environment = {**os.environ, **cache, "NO_PROXY": "127.0.0.1"}
            return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    return run


def test_a_model_of_the_hub_is_brought_whole(build, tmp_path):
    ran = build("small", "--for", "llmapi", "--from", "hf:owner/Tiny-Chat")
    assert ran.returncode == 0, ran.stderr
    engine = manifest.load(tmp_path / "built" / "small")
    assert (engine.name, engine.end_ids) == ("Tiny-Chat", (0, 7))
    assert (engine.weights_path / "model.safetensors").read_bytes() == b"weights"
    assert engine.tokenizer_path.is_file()
    assert "downloading model.safetensors of owner/Tiny-Chat" in ran.stderr


def test_a_dry_run_asks_the_hub_for_the_models_config_alone(build, tmp_path):
    ran = build("small", "--for", "tensorrt_llm", "--dry-run", "--from", "hf:owner/Tiny-Chat")
    assert ran.returncode == 0, ran.stderr
    assert "models/core/qwen/convert_checkpoint.py" in ran.stdout
    assert 'snapshot_download("owner/Tiny-Chat", local_dir=' in ran.stdout
    assert "guess" not in ran.stdout
    assert not list(Path(tmp_path / "cache").rglob("model.safetensors"))


def test_a_model_that_wants_a_token_says_so_in_one_line(build):
    ran = build("small", "--for", "llmapi", "--from", "hf:owner/Tiny-Chat", status=403)
    assert ran.returncode == 1
    line = ran.stderr.splitlines()[-1]
    assert line.startswith("error: the Hugging Face hub refuses owner/Tiny-Chat: ")
    assert "HF_TOKEN" in line


def test_a_hub_that_cannot_be_reached_leaves_a_guess_from_the_models_name(tmp_path):
    arguments = ["small", "--for", "tensorrt_llm", "--dry-run", "--from", "hf:owner/Qwen-Tiny"]
    command = [sys.executable, "-c", CODE.format(arguments, str(tmp_path))]
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment = {**plain, "HF_ENDPOINT": "http://hub.invalid", "HF_HOME": str(tmp_path)}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (
        "# The hub can't be reached, so that this is a model of the family qwen is only a guess from its name."
        in ran.stdout
    )
