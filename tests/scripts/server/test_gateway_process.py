"""What scripts/serve says of the gateway that it starts beside the server."""

from __future__ import annotations

import queue
import sys

import pytest

from bls.paths import ROOT
from scripts import serve
from scripts.environment import Environment
from scripts.host.preflight import Refused
from scripts.server import gateway_process
from scripts.server.gateway_process import Gateway, Process, tritons_host

ROUTER = ("llm_router",)


def options(*flags, target="cpu"):
    return serve.parse([target, *flags])[0]


@pytest.mark.parametrize(
    ("flags", "host"),
    [
        ([], "127.0.0.1"),
        (["--host=0.0.0.0"], "127.0.0.1"),
        (["--host=10.1.2.3"], "127.0.0.1"),
        (["--host=::"], "::1"),
        (["--host=::1"], "::1"),
        (["--host=0.0.0.0", "--open-triton"], "0.0.0.0"),
        (["--host=0.0.0.0", "--no-gateway"], "0.0.0.0"),
    ],
)
def test_tritons_ports_are_for_this_machine_beside_a_gateway(flags, host):
    assert tritons_host(options(*flags), ROUTER) == host


def test_where_no_router_is_served_there_is_no_gateway_and_triton_listens_where_it_is_told():
    assert not Gateway(options(), ("other",)).is_wanted
    assert tritons_host(options("--host=0.0.0.0"), ("other",)) == "0.0.0.0"


def test_on_gpus_there_is_one_where_a_python_has_its_packages(monkeypatch, tmp_path):
    gpu = options("--host=0.0.0.0", target="gpu")
    assert Gateway(gpu, ROUTER).is_wanted and tritons_host(gpu, ROUTER) == "127.0.0.1"
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(gateway_process, "PYTHON", bare)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    gateway_process._python.cache_clear()
    try:
        without = Gateway(gpu, ROUTER)
        assert not without.is_wanted and tritons_host(gpu, ROUTER) == "0.0.0.0"
        assert "requirements-gateway.txt" in " ".join(without.summary("?"))
        without.check()
        with pytest.raises(Refused, match="--no-gateway"):
            Gateway(options("--gateway-port=7000", target="gpu"), ROUTER).check()
    finally:
        gateway_process._python.cache_clear()


def test_its_packages_are_those_of_the_servers_set_up():
    pins = set((ROOT / "requirements.txt").read_text().splitlines())
    _, *alone = (ROOT / "requirements-gateway.txt").read_text().splitlines()
    assert alone and set(alone) <= pins


def test_its_port_is_above_that_of_http_unless_it_is_told():
    assert Gateway(options(), ROUTER).port == 9000
    assert Gateway(options("--http-port=8100"), ROUTER).port == 9100
    assert Gateway(options("--gateway-port=7000"), ROUTER).port == 7000


def test_without_keys_it_is_for_this_machine_and_with_them_where_the_host_says(monkeypatch, tmp_path):
    monkeypatch.setattr(gateway_process, "KEYS", tmp_path / "none")
    assert Gateway(options("--host=0.0.0.0"), ROUTER).host == "127.0.0.1"
    keys = tmp_path / "keys.txt"
    keys.write_text("")
    with_keys = Gateway(options("--host=0.0.0.0", f"--gateway-keys={keys}", "--grpc-port=8101"), ROUTER)
    assert with_keys.host == "0.0.0.0"
    assert {"--triton=127.0.0.1:8101", f"--keys={keys}", "--host=0.0.0.0"} <= set(with_keys.command())


def test_its_processes_are_as_many_as_are_asked_for():
    assert "--workers=3" in Gateway(options("--gateway-workers=3"), ROUTER).command()
    for wrong in ("0", "65"):
        with pytest.raises(Refused, match="--gateway-workers"):
            Gateway(options(f"--gateway-workers={wrong}"), ROUTER).check()


def test_keys_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(Refused, match="scripts/keys add"):
        Gateway(options(f"--gateway-keys={tmp_path / 'none'}", "--gateway-port=1"), ROUTER).check()


@pytest.mark.parametrize("flag", ["--grpc-use-ssl=true", "--grpc-use-ssl-mutual=1", "--allow-grpc=false"])
def test_a_triton_that_it_could_not_ask_is_refused(flag):
    with pytest.raises(Refused, match=f"^{flag.partition('=')[0]}.* gRPC without TLS; add --no-gateway"):
        Gateway(options(flag), ROUTER).check()
    Gateway(options(flag, "--no-gateway"), ROUTER).check()


def test_the_snippet_that_is_shown_is_python():
    *_, first, second, third = Gateway(options(), ROUTER).summary("What is the capital of France?")
    compile("\n".join(line.strip() for line in (first, second, third)), "snippet", "exec")


def test_it_runs_on_the_python_of_the_set_up_whichever_one_runs_scripts_serve():
    assert Gateway(options(), ROUTER).command()[0] == str(Environment().python)


def test_a_gateway_that_dies_is_told_and_started_again(tmp_path):
    told = queue.Queue()
    process = Process([sys.executable, "-c", "import sys; sys.exit(7)"], {}, tmp_path / "log", 5.0, told.put)
    process.start()
    try:
        assert "the gateway ended with status 7" in told.get(timeout=60)
        assert "the next start is in 2 s" in told.get(timeout=60)
    finally:
        process.drain()
