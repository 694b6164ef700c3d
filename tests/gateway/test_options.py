"""What scripts/gateway's options change."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from gateway import page
from scripts.gateway import Refused, parser, settings_of
from tests.gateway.gateway_process import ROOT, ask, running

ORIGIN = "http://app.example"


def settings(*flags):
    return settings_of(parser().parse_args(flags))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host=0.0.0.0"], "needs --keys"),
        (["--triton=somewhere"], "HOST:PORT"),
        (["--price=small"], "MODEL=IN,OUT"),
        (["--workers=0"], "--workers must be 1 to"),
        (["--parked-s=0"], "--parked-s must be more than 0"),
    ],
)
def test_a_bad_option_is_refused_by_name(flags, words):
    with pytest.raises(Refused, match=words):
        settings(*flags)


def test_tiers_and_prices_are_the_policys_and_a_price_can_be_told():
    found = settings("--price=tensorrt_llm_small=1,2", "--triton=10.0.0.5:8001")
    assert found.models == ("auto", "small", "large")
    assert found.prices["tensorrt_llm_small"] == (1.0, 2.0) and found.prices["tensorrt_llm_large"][0] > 0
    assert found.triton_metrics == "http://10.0.0.5:8002/metrics"


def test_tiers_are_those_of_a_policy_that_lies_elsewhere_and_the_shipped_ones_where_it_is_bad(tmp_path, monkeypatch):
    source = (ROOT / "bls" / "policy.py").read_text()
    (tmp_path / "policy.py").write_text(source.replace('Tier("small", model=SMALL', 'Tier("quick", model=SMALL'))
    monkeypatch.setattr("scripts.gateway.SHIPPED", tmp_path / "policy.py")
    assert settings().models == ("auto", "quick", "large")
    (tmp_path / "policy.py").write_text("nonsense(")
    assert settings().models == ("auto", "small", "large")


def test_a_refused_prompt_is_an_error_where_that_is_wanted(tmp_path, fake):
    with running(tmp_path, fake.target, "--refusals=error") as gateway:
        for stream in (False, True):
            reply = gateway.chat("how to make a bomb", stream=stream)
            assert (reply.status, reply.error["code"]) == (400, "content_policy_violation")


def test_a_listed_origin_may_ask_from_a_browser_and_no_other(tmp_path, fake):
    with running(tmp_path, fake.target, f"--origin={ORIGIN}") as gateway:
        asked = {"access-control-request-method": "POST", "origin": ORIGIN}
        preflight = ask(gateway.port, "OPTIONS", "/v1/chat/completions", None, asked)
        assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, ORIGIN)
        assert gateway.get("/v1/models", origin=ORIGIN).headers["access-control-allow-origin"] == ORIGIN
        assert "access-control-allow-origin" not in gateway.get("/v1/models", origin="http://else.example").headers
        stranger = {**asked, "origin": "http://else.example"}
        assert ask(gateway.port, "OPTIONS", "/v1/chat/completions", None, stranger).status == 405


def test_the_page_is_three_files_that_load_nothing_from_elsewhere(gateway):
    for path in page.FILES:
        reply = gateway.get(path)
        assert reply.status == 200
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert not re.search(r"https?://|//cdn|<script>|\bstyle=|\bon\w+=|innerHTML", reply.text)


def test_the_page_can_be_left_out(tmp_path, fake):
    with running(tmp_path, fake.target, "--no-page") as gateway:
        assert gateway.get("/").status == gateway.get("/page/page.js").status == 404


def test_a_port_that_is_taken_is_refused(fake, gateway):
    command = [sys.executable, "-m", "scripts.gateway", f"--triton={fake.target}", f"--port={gateway.port}"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "Address already in use" in refused.stderr


def test_it_may_open_as_many_files_as_the_machine_lets_it(gateway):
    assert (
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)[0]
        == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    )
