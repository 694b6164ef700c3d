from __future__ import annotations

import argparse
import os
import re
import subprocess

import pytest

from scripts import serve
from scripts.environment import Environment
from scripts.host.preflight import Refused
from scripts.server import option_names, server_options

OURS = {"http-port", "grpc-port", "metrics-port", "model-repository", "exit-timeout-secs"}


@pytest.fixture(scope="module")
def help_text() -> str:
    """What the tritonserver of the set-up says of its options."""
    setup = Environment()
    env = {**setup.variables(), "LD_LIBRARY_PATH": os.pathsep.join(map(str, setup.libraries))}
    said = subprocess.run([setup.tritonserver, "--help"], env=env, capture_output=True, text=True, timeout=60)
    return said.stdout + said.stderr


def test_every_option_of_tritonserver_is_known_and_none_is_invented(help_text):
    current, _, deprecated = help_text.partition("\nDEPRECATED:")
    names = set(re.findall(r"^  --([a-z0-9-]+)", current, re.MULTILINE))
    assert server_options.KNOWN | set(option_names.OTHERS) == names - OURS
    old = set(re.findall(r"^  --([a-z0-9-]+)", deprecated, re.MULTILINE))
    assert old and old <= option_names.RENAMED.keys()


def test_what_is_to_be_used_instead_of_a_wrong_name_exists(help_text):
    named = {name for advice in option_names.RENAMED.values() for name in re.findall(r"--([a-z-]+)", advice)}
    own = set(re.findall(r"--([a-z-]+)", argument_help()))
    assert named <= own
    assert not option_names.RENAMED.keys() & (server_options.KNOWN | own)


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
        ("--rate-limiter", "there is no --rate-limiter: use --rate-limit=execution_count"),
        ("--trace-level=OFF", "there is no --trace-level: use --trace-config=level=TIMESTAMPS"),
        ("--tensorrt_llm_model_name=x", "engine models are found by their backend"),
        ("--model_repo=x", "there is no --model_repo: use --model-repository"),
        ("--preferred-batch-size=8", "it is a field of the model's config.pbtxt"),
    ],
)
def test_a_name_of_old_articles_or_of_nvidias_launcher_is_refused_with_the_right_one(target, flag, said):
    with pytest.raises(Refused, match=re.escape(said)):
        serve.parse([target, flag])


def test_an_unknown_name_is_refused_where_the_servers_version_is_known_and_may_be_newer_elsewhere():
    with pytest.raises(Refused, match=r"there is no --http-thread-counts: --http-thread-count\?"):
        serve.parse(["cpu", "--http-thread-counts=2"])
    with pytest.raises(Refused, match="there is no --xyz: scripts/serve --help lists all"):
        serve.parse(["cpu", "--xyz"])
    assert serve.parse(["gpu", "--option-of-a-later-server=2"])[1] == ["--option-of-a-later-server=2"]


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--model-control-mode=EXPLICIT", "it is 'EXPLICIT' and must be none, poll or explicit"),
        ("--rate-limit=on", "it is 'on' and must be off or execution_count"),
        ("--rate-limit-resource=R1", "must be NAME:COUNT or NAME:COUNT:GPU"),
        ("--cuda-memory-pool-byte-size=64", "must be GPU:BYTES"),
        ("--pinned-memory-pool-byte-size=-1", "must be a whole number, 0 or more"),
        ("--model-load-thread-count=0", "must be a whole number, 1 or more"),
        ("--exit-on-error=yes", "must be true or false"),
        ("--cache-config=local", "must be NAME,KEY=VALUE"),
        ("--trace-config=foo", "must be KEY=VALUE, triton,KEY=VALUE or opentelemetry,KEY=VALUE"),
        ("--metrics-interval-ms=soon", "must be a number, 0 or more"),
        ("--log-verbose", "expected one argument"),
    ],
)
def test_a_wrong_value_is_refused_with_the_option_and_what_is_right(flag, said):
    with pytest.raises(Refused) as refused:
        serve.parse(["cpu", flag])
    assert str(refused.value).startswith(f"{flag.partition('=')[0]}: ")
    assert said in str(refused.value)


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


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--load-model=a", "--model-control-mode=poll"], "--load-model needs --model-control-mode=explicit"),
        (["--load-model=*", "--load-model=a"], r"--load-model=\* is every model"),
        (["--repository-poll-secs=3"], "--repository-poll-secs needs --model-control-mode=poll"),
        (["--rate-limit-resource=R:3"], "--rate-limit-resource needs --rate-limit=execution_count"),
        (["--rate-limit-resource=R:3", "--rate-limit=off"], "--rate-limit-resource needs"),
    ],
)
def test_options_that_would_not_be_heeded_together_are_refused(flags, said):
    with pytest.raises(Refused, match=said):
        serve.parse(["cpu", *flags])
