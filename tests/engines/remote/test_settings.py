"""Where a tier's engine servers are: out of config.pbtxt, or of LLM_ROUTER_REMOTE, which wins."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.paths import MODEL_REPOSITORY
from engines.remote.settings import VARIABLE, Address, RemoteParameters, by_tier, read
from engines.worker.parameters import BadParameter

A, B = Address("10.0.0.1", 8001), Address("large.llm.svc", 8001)


def test_the_variable_names_the_endpoints_of_each_tier():
    text = "small=10.0.0.1:8001,[::1]:9001  large=large.llm.svc:8001"
    assert by_tier(text) == {"small": (A, Address("::1", 9001)), "large": (B,)}
    assert str(by_tier(text)["small"][1]) == "[::1]:9001"


@pytest.mark.parametrize("tier", ["small", "large"])
def test_the_shipped_configs_hold_the_defaults_and_no_endpoint(tier):
    path = MODEL_REPOSITORY / f"tensorrt_llm_{tier}" / "configs" / "remote.pbtxt"
    config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
    given = {key: value.string_value for key, value in config.parameters.items()}
    assert read(given, tier, {VARIABLE: f"{tier}=10.0.0.1:8001"}) == RemoteParameters((A,))
    with pytest.raises(BadParameter, match=f"no endpoint of the tier {tier} is named: in {VARIABLE}, or as parameter"):
        read(given, tier, {})


def test_what_the_variable_says_of_a_tier_takes_the_place_of_the_configs():
    given = {"endpoints": "10.0.0.1:8001"}
    assert read(given, "large", {}).endpoints == (A,)
    assert read(given, "large", {VARIABLE: "small=a:1"}).endpoints == (A,)
    assert read(given, "large", {VARIABLE: "large=large.llm.svc:8001"}).endpoints == (B,)


def test_a_key_is_read_as_curl_takes_it_and_never_shown(tmp_path):
    file = tmp_path / "key"
    file.write_text("X-Engine: s3cret\n")
    found = read({"endpoints": "a:1", "key_file": str(file)}, "large", {})
    assert found.key == ("X-Engine", "s3cret") and "s3cret" not in repr(found)
    file.write_text("s3cret")
    with pytest.raises(BadParameter, match="legal: a file with one line, NAME: KEY"):
        read({"endpoints": "a:1", "key_file": str(file)}, "large", {})


@pytest.mark.parametrize(
    ("given", "variable", "said"),
    [
        ({"endpoints": "10.0.0.1"}, "", "parameter endpoints is '10.0.0.1'; legal: HOST:PORT"),
        ({"endpoints": "10.0.0.1:99999"}, "", "legal: HOST:PORT"),
        ({"endpoints": "a:1,a:1"}, "", "an endpoint is named twice"),
        ({}, "10.0.0.1:8001", f"{VARIABLE} is '10.0.0.1:8001'; legal: TIER=HOST:PORT"),
        ({}, "large=", "legal: TIER=HOST:PORT"),
        ({}, "large=a:1 large=b:1", "the tier large is named twice"),
        ({"endpoint": "a:1"}, "", "parameter endpoint is unknown; known: engine, endpoints, metrics_port"),
        ({"metrics_port": "-1"}, "", "parameter metrics_port is '-1'; legal: a whole number from 0 to 65535"),
        ({"key_file": "/no/such/file"}, "", "parameter key_file is '/no/such/file'; No such file or directory"),
        ({"compare_models": "perhaps"}, "", "parameter compare_models is 'perhaps'; legal: true"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_legal(given, variable, said):
    with pytest.raises(BadParameter) as raised:
        read(given, "large", {VARIABLE: variable})
    assert said in str(raised.value)
