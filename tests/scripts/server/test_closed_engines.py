"""Which server can close its engines to all but the router."""

from __future__ import annotations

from pathlib import Path

import pytest

from bls.contract import LLAMA_7B, LLAMA_7B_ENSEMBLE, ROUTER, SMALL
from scripts import serve
from scripts.host.preflight import Refused
from scripts.server.tritonserver import ENGINE_KEY_VARIABLE


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    for name in (ROUTER, SMALL, LLAMA_7B, LLAMA_7B_ENSEMBLE):
        (models / name / "configs").mkdir(parents=True)
    (models / SMALL / "config.pbtxt").write_text('backend: "tensorrtllm"')
    for config in ("cpu", "llmapi"):
        (models / SMALL / "configs" / f"{config}.pbtxt").write_text('backend: "python"')
    (models / LLAMA_7B_ENSEMBLE / "config.pbtxt").write_text(
        f'platform: "ensemble" step {{ model_name: "{LLAMA_7B}" }}'
    )
    return models


def settings(repository: Path, *arguments: str, target: str = "cpu"):
    return serve.settings_of(*serve.parse([target, f"--model-repository={repository}", *arguments]))


def test_each_start_has_another_word_and_what_can_not_bring_it_along_is_left_out(repository):
    first, second = (settings(repository, "--close-engines") for _ in range(2))
    assert first.models == (ROUTER, SMALL)
    assert len(bytes.fromhex(first.engine_key)) == 32
    assert first.engine_key != second.engine_key


def test_engines_are_open_unless_a_person_closes_them(repository):
    found = settings(repository)
    assert found.engine_key == ""
    assert LLAMA_7B_ENSEMBLE in found.models


def test_the_word_is_in_the_servers_environment_and_on_no_command_line(repository, monkeypatch, capsys):
    monkeypatch.delenv(ENGINE_KEY_VARIABLE, raising=False)
    assert serve.main(["cpu", "--dry-run", "--close-engines", f"--model-repository={repository}"]) == 0
    variables, _, command = capsys.readouterr().out.partition("tritonserver --")
    assert f"{ENGINE_KEY_VARIABLE}=" in variables
    assert ENGINE_KEY_VARIABLE not in command


@pytest.mark.parametrize(
    ("target", "flags", "said"),
    [
        ("gpu", [], "not possible with tensorrt_llm_small: the backend tensorrtllm answers whoever asks"),
        ("cpu", ["--model-control-mode=none"], "needs --model-control-mode=explicit"),
        ("cpu", [f"--load-model={LLAMA_7B}"], f"leaves {LLAMA_7B} out, which --load-model names"),
    ],
)
def test_where_it_would_not_hold_it_is_refused(repository, target, flags, said):
    with pytest.raises(Refused, match=said):
        settings(repository, "--close-engines", *flags, target=target)


def test_the_llm_api_is_python_and_can_be_closed(repository):
    assert settings(repository, "--engine=llmapi", "--close-engines", target="gpu").engine_key
