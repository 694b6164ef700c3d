from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from scripts import serve
from scripts.host.preflight import Refused


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("llm_router", "preprocessing"):
        (tmp_path / "models" / name).mkdir(parents=True)
    return tmp_path / "models"


def settings(*arguments: str):
    return serve.settings_of(*serve.parse(["cpu", *arguments]))


def test_a_flag_that_this_script_replaces_is_refused_with_the_one_to_use():
    with pytest.raises(Refused, match="use --host instead of --grpc-address"):
        serve.parse(["cpu", "--grpc-address=0.0.0.0"])


@pytest.mark.parametrize("flags", [["--allow-http=false"], ["--allow-http", "False"], ["--allow-http=0"]])
def test_a_server_without_http_is_refused_since_readiness_is_asked_there(capsys, flags):
    assert serve.main(["cpu", *flags]) == 2
    said = capsys.readouterr().err
    assert said == "error: --allow-http=false is not possible, because readiness is asked over HTTP\n"


def test_http_may_be_allowed_in_words():
    assert serve.parse(["cpu", "--allow-http=true"])[1] == ["--allow-http=true"]


def test_what_earlier_servers_left_is_removed_before_it_can_fail_the_check(repository, monkeypatch, capsys):
    left = ["a file"]

    def refuse_while_there(settings):
        raise Refused(f"{len(left)} left")

    monkeypatch.setattr(serve.shared_memory, "remove_stale", left.clear)
    monkeypatch.setattr(serve, "check", refuse_while_there)
    assert serve.main(["cpu", f"--model-repository={repository}"]) == 2
    assert capsys.readouterr().err == "error: 0 left\n"


def test_a_folder_without_models_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Refused, match="contains no model"):
            settings(f"--model-repository={folder}")


def test_every_model_is_loaded_unless_some_are_named(repository):
    there = f"--model-repository={repository}"
    assert settings(there).models == ("llm_router", "preprocessing")
    assert settings(there, "--load-model=*").models == ("llm_router", "preprocessing")
    assert settings(there, "--load-model", "preprocessing").models == ("preprocessing",)


def test_models_may_be_left_out_and_their_ensembles_go_with_them(repository):
    (repository / "both").mkdir()
    (repository / "both" / "config.pbtxt").write_text('platform: "ensemble" step { model_name: "preprocessing" }')
    there = f"--model-repository={repository}"
    assert settings(there, "--skip-model=preprocessing").models == ("llm_router",)
    assert settings(there, "--skip-model=both", "--skip-model=llm_router").models == ("preprocessing",)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--load-model=router"], "has no model router; it has llm_router, preprocessing"),
        (["--skip-model=router"], "has no model router"),
        (["--skip-model=llm_router", "--load-model=preprocessing"], "--skip-model cannot be combined with"),
        (["--skip-model=llm_router", "--model-control-mode=poll"], "--skip-model cannot be combined with"),
        (["--skip-model=llm_router", "--skip-model=preprocessing"], "leaves out every model"),
    ],
)
def test_models_that_are_not_there_and_choices_that_contradict_each_other_are_refused(repository, flags, said):
    with pytest.raises(Refused, match=said):
        settings(f"--model-repository={repository}", *flags)


def test_a_dry_run_prints_the_line_and_starts_and_sets_up_nothing(repository, capsys):
    assert serve.main(["cpu", "--dry-run", f"--model-repository={repository}", "--rate-limit=off"]) == 0
    words = shlex.split(capsys.readouterr().out.replace("\\\n", " "))
    assert {"--load-model=llm_router", "--rate-limit=off", "--model-config-name=cpu"} <= set(words)


def test_the_curl_line_is_what_a_shell_can_run(repository):
    text = serve.summary(settings(f"--model-repository={repository}", "--http-port=8100"))
    (line,) = [line for line in text.splitlines() if "curl" in line]
    words = shlex.split(line)
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8100/v2/models/llm_router/generate"]
    assert json.loads(words[4]) == {"text_input": serve.QUESTION, "max_tokens": 32, "apply_chat_template": True}
    assert "--port 8100" in text


def test_a_repository_without_the_router_gets_no_curl_line(repository):
    (repository / "llm_router").rmdir()
    assert "curl" not in serve.summary(settings(f"--model-repository={repository}"))


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1:8000"), ("0.0.0.0", "127.0.0.1:8000"), ("::", "[::1]:8000"), ("::1", "[::1]:8000")],
)
def test_the_addresses_shown_are_those_that_a_client_here_can_use(repository, host, address):
    assert settings(f"--model-repository={repository}", f"--host={host}").address(8000) == address


def test_options_of_the_other_target_are_refused(capsys):
    assert serve.main(["cpu", "--world-size=2"]) == 2
    assert capsys.readouterr().err == "error: --world-size is for serve gpu\n"
