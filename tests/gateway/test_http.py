"""What HTTP itself asks of the gateway: methods, connections that are kept, what is handed on to Triton."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.gateway.gateway_process import ask

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/v1/models/auto", "/metrics", "/"])
def test_head_is_get_without_the_body(gateway, path):
    found = ask(gateway.port, "HEAD", path, None, {})
    assert (found.status, found.text) == (200, "")
    if path == "/v1/models":
        assert int(found.headers["content-length"]) == len(gateway.get(path).text)


def test_options_without_a_listed_origin_names_the_method_and_opens_nothing(gateway):
    for path, allowed in (("/v1/chat/completions", "POST"), ("/v1/models", "GET")):
        found = ask(gateway.port, "OPTIONS", path, None, {"origin": "http://else.example"})
        assert (found.status, found.headers["allow"]) == (405, allowed)
        assert not [name for name in found.headers if name.startswith("access-control")]


def test_a_connection_serves_one_request_after_the_other_streamed_or_not_or_refused(gateway):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    sockets = set()
    for fields in ({}, {"stream": True}, {"n": 99}, {"model": "gpt-99"}, {}):
        body = {"model": "auto", "prompt": "one two", **fields}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        sockets.add(connection.sock)
        response = connection.getresponse()
        assert response.read() and response.getheader("connection") != "close"
    assert len(sockets) == 1
    connection.close()


def test_a_trace_is_handed_on_to_triton_if_it_is_well_formed(gateway, fake):
    gateway.complete("one", stream=True)
    assert "traceparent" not in fake.requests[-1]["metadata"]
    for state in ({}, {"tracestate": "a=b,c=d"}):
        gateway.post("/v1/completions", {"model": "auto", "prompt": "one"}, traceparent=PARENT, **state)
        metadata = fake.requests[-1]["metadata"]
        assert {name: metadata[name] for name in metadata if name.startswith("trace")} == {
            "traceparent": PARENT,
            **state,
        }
    for wrong in ("00-xyz", PARENT + "\tx", PARENT.upper()):
        gateway.post("/v1/completions", {"model": "auto", "prompt": "one"}, traceparent=wrong)
        assert "traceparent" not in fake.requests[-1]["metadata"]


def test_the_request_id_is_tritons_too(gateway, fake):
    gateway.post("/v1/completions", {"model": "auto", "prompt": "one"}, x_request_id="from-outside")
    assert fake.requests[-1]["id"].startswith("from-outside-")
