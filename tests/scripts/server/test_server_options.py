from __future__ import annotations

import argparse
import os
import re
import subprocess

import pytest

from scripts import serve
from scripts.environment import Environment
from scripts.host.preflight import Refused
from scripts.server import server_options
from tests.stand_ins.tritonserver import OTHERS

OURS = {"http-port", "grpc-port", "metrics-port", "model-repository", "exit-timeout-secs"}


@pytest.fixture(scope="module")
def help_text() -> str:
    """What the tritonserver of the set-up says of its options."""
    setup = Environment()
    env = {**setup.variables(), "LD_LIBRARY_PATH": os.pathsep.join(map(str, setup.libraries))}
    said = subprocess.run([setup.tritonserver, "--help"], env=env, capture_output=True, text=True, timeout=60)
    return said.stdout + said.stderr


def test_every_option_of_tritonserver_is_known_to_serve_or_its_stand_in_and_none_is_invented(help_text):
    names = set(re.findall(r"^  --([a-z0-9-]+)", help_text.partition("\nDEPRECATED:")[0], re.MULTILINE))
    assert server_options.KNOWN | set(OTHERS) == names - OURS


def test_what_is_to_be_used_instead_of_a_launchers_name_exists():
    named = {name for advice in server_options.LAUNCHER.values() for name in re.findall(r"--([a-z-]+)", advice)}
    own = set(re.findall(r"--([a-z-]+)", argument_help()))
    assert named <= own
    assert not server_options.LAUNCHER.keys() & (server_options.KNOWN | own)


def argument_help() -> str:
    with pytest.raises(SystemExit), pytest.MonkeyPatch.context() as patched:
        said: list[str] = []
        patched.setattr(argparse.ArgumentParser, "_print_message", lambda self, text, file=None: said.append(text))
        serve.parse(["--help"])
    return said[0]


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--http_port=8100", "there is no --http_port: use --http-port"),
        ("--Model-Control-Mode=poll", "there is no --Model-Control-Mode: use --model-control-mode"),
        ("--tensorrt_llm_model_name=x", "engine models are found by their backend"),
        ("--model_repo=x", "there is no --model_repo: use --model-repository"),
    ],
)
def test_a_misspelt_name_or_one_of_nvidias_launcher_is_refused_with_the_right_one(target, flag, said):
    with pytest.raises(Refused, match=re.escape(said)):
        serve.parse([target, flag])


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_what_the_server_can_refuse_itself_is_handed_on(target):
    flags = ["--rate-limit=on", "--option-of-a-later-server=2"]
    assert serve.parse([target, *flags])[1] == flags


def test_an_option_without_its_value_is_refused():
    with pytest.raises(Refused, match="--log-verbose: expected one argument"):
        serve.parse(["cpu", "--log-verbose"])


def test_right_options_reach_tritonserver_as_they_are_in_either_form():
    flags = [
        "--rate-limit=execution_count",
        "--rate-limit-resource=R1:4",
        "--rate-limit-resource=R2:1:0",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=triton,file=/tmp/trace.json",
        "--cache-config=local,size=1048576",
        "--model-load-gpu-limit=0:0.9",
        "--exit-on-error=False",
        "--log-format=ISO8601",
    ]
    assert serve.parse(["cpu", *flags])[1] == flags
    apart = [word for flag in flags for word in flag.split("=", 1)]
    assert serve.parse([*apart, "cpu"])[1] == flags


def test_a_certificate_is_found_from_where_one_stands_and_one_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.pem").touch()
    assert serve.parse(["cpu", "--grpc-server-cert=server.pem"])[1] == [f"--grpc-server-cert={tmp_path}/server.pem"]
    with pytest.raises(Refused, match=r"^--grpc-server-key key\.pem is no file that can be read$"):
        serve.parse(["cpu", "--grpc-server-cert", "server.pem", "--grpc-server-key", "key.pem"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model-control-mode=EXPLICIT"], "--model-control-mode is 'EXPLICIT' and must be none, poll or explicit"),
        (["--load-model=a", "--model-control-mode=poll"], "--load-model needs --model-control-mode=explicit"),
        (["--load-model=*", "--load-model=a"], r"--load-model=\* means every model"),
        (["--repository-poll-secs=3"], "--repository-poll-secs needs --model-control-mode=poll"),
        (["--rate-limit-resource=R:3"], "--rate-limit-resource needs --rate-limit=execution_count"),
        (["--rate-limit-resource=R:3", "--rate-limit=off"], "--rate-limit-resource needs"),
    ],
)
def test_options_that_would_not_be_heeded_together_are_refused(flags, said):
    with pytest.raises(Refused, match=said):
        serve.parse(["cpu", *flags])
