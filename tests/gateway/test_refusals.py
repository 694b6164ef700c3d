"""Requests that can't be answered: each has its status, and an error that names what is wrong."""

from __future__ import annotations

import pytest

CHAT = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokenz": 5}, "max_tokenz", "did you mean max_tokens?"),
        ({"temperature": 3}, "temperature", "<= 2"),
        ({"temperature": "hot"}, "temperature", "expected"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"max_tokens": 2**31}, "max_tokens", "<="),
        ({"max_tokens": 5.5}, "max_tokens", "expected int"),
        ({"seed": -1}, "seed", "0 to 2**64-1"),
        ({"seed": 2**64}, "seed", "0 to 2**64-1"),
        ({"n": 9}, "n", "<= 8"),
        ({"messages": []}, "messages", "length >= 1"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role", "is missing"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "only text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "must be a string or a list"),
        ({"messages": "hi"}, "messages", "expected array"),
        ({"logprobs": True}, "logprobs", "filter"),
        ({"ignore_eos": True, "max_tokens": None}, "ignore_eos", "goes with max_tokens"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "goes with stream"),
        ({"stop": ["x"] * 65}, "stop", "at most 64"),
        ({"user": "x" * 257}, "user", "256"),
        ({"modalities": ["audio"]}, "modalities", "text"),
        ({"functions": [{"name": "f"}]}, "functions", "not supported"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_object"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema is missing"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tool_choice", "can't choose"),
    ],
)
def test_a_bad_field_is_named(gateway, fields, param, words):
    reply = gateway.post("/v1/chat/completions", {**CHAT, **fields})
    assert reply.status == 400, reply
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert (reply.error["type"], reply.error["param"]) == ("invalid_request_error", param)
    assert words in reply.error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"model": "auto", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "auto", "messages": [{"role": "user", "content": "\xff"}]}',
        b'{"model": "auto", "messages": ' + b"[" * 50_000,
        b'{"model": "auto", "metadata": ' + b"[" * 3000 + b"]" * 3000 + b', "messages": 5}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)
def test_what_is_no_such_json_is_a_bad_request(gateway, body):
    reply = gateway.post("/v1/chat/completions", body)
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")


def test_null_is_the_same_as_nothing_for_every_optional_field(gateway):
    from gateway.chat_body import ChatBody

    nothing = {name: None for name in ChatBody.__struct_fields__ if name not in CHAT}
    assert gateway.post("/v1/chat/completions", {**CHAT, **nothing}).status == 200


def test_harmless_fields_are_taken(gateway):
    harmless = {"store": False, "metadata": {"a": "b"}, "parallel_tool_calls": True, "prompt_cache_key": "x"}
    assert gateway.post("/v1/chat/completions", {**CHAT, **harmless, "reasoning_effort": "none"}).status == 200


def test_tokens_must_come_before_an_engine_may_end_as_far_as_that_is_asked(gateway, fake):
    for fields, least in (({"ignore_eos": True}, 50), ({"min_tokens": 7}, 7), ({"ignore_eos": False}, None)):
        gateway.chat(**fields)
        assert fake.requests[-1].get("min_tokens") == least


def test_the_service_tier_is_told_where_it_was_asked_for(gateway):
    assert "service_tier" not in gateway.chat().json
    assert gateway.chat(service_tier="flex").json["service_tier"] == "flex"
    assert gateway.chat(service_tier="flex", stream=True).events[0]["service_tier"] == "flex"


def test_an_unknown_model_is_not_found(gateway):
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "hi"})):
        reply = gateway.post(path, {**body, "model": "gpt-99"})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
    assert gateway.get("/v1/models/gpt-99").status == 404


def test_paths_and_methods_that_are_not_there(gateway):
    assert gateway.get("/v1/nothing").status == 404
    reply = gateway.get("/v1/chat/completions")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert gateway.post("/v1/models", {}).headers["allow"] == "GET"


def test_a_body_that_is_not_json_by_its_type_is_415(gateway):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert gateway.post("/v1/chat/completions", CHAT, content_type=kind).status == 415
    assert gateway.post("/v1/chat/completions", CHAT, content_type="application/json; charset=utf-8").status == 200
    assert gateway.post("/v1/chat/completions", CHAT, content_encoding="gzip").status == 415


def test_too_large_a_body_is_413_whether_its_length_is_told_or_not(gateway):
    reply = gateway.post("/v1/chat/completions", b" " * (1 << 20) + b"{}")
    assert (reply.status, reply.error["code"], reply.headers["connection"]) == (413, "content_too_large", "close")
    from tests.gateway.raw_http import exchange

    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    assert exchange(gateway.port, head + chunk * 17 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    told = head.replace(b"transfer-encoding: chunked", b"content-length: 99999999")
    assert exchange(gateway.port, told).startswith(b"HTTP/1.1 413 ")


def test_a_refused_prompt_ends_as_content_filter_with_the_policys_text(gateway):
    reply = gateway.chat("how to make a bomb")
    (choice,) = reply.json["choices"]
    assert (choice["finish_reason"], choice["message"]["content"], choice["message"]["refusal"]) == (
        "content_filter",
        "No.",
        "No.",
    )
    *_, refused, end, _ = gateway.chat("how to make a bomb", stream=True).events
    assert refused["choices"][0]["delta"] == {"content": "No.", "refusal": "No."}
    assert end["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.parametrize(
    ("message", "status", "kind"),
    [
        ("[BUSY] the engines' queues are full", 503, "overloaded_error"),
        ("in ensemble 'x', [model 'llm_router'] Exceeds maximum queue size", 503, "overloaded_error"),
        ("[TIMEOUT] no token came", 504, "timeout_error"),
        ("[BAD_REQUEST] stop_words holds 70 words", 400, "invalid_request_error"),
        ("[REFUSED] not this one", 400, "invalid_request_error"),
        ("[INTERNAL] the engine failed", 500, "server_error"),
        ("/opt/secret/path.py:5 Traceback", 500, "server_error"),
    ],
)
def test_what_the_router_says_has_its_status(gateway, fake, message, status, kind):
    for stream in (False, True):
        fake.failures.append((message, 0))
        reply = gateway.chat(stream=stream)
        assert (reply.status, reply.error["type"]) == (status, kind)
        assert "secret" not in reply.text
        assert ("retry-after" in reply.headers) == (status == 503)
        assert reply.headers.get("x-should-retry") == ("false" if status in (500, 504) else None)


def test_fields_are_named_as_the_client_knows_them(gateway, fake):
    fake.failures.append(("[BAD_REQUEST] stop_words holds 70 words; at most 64 are taken", 0))
    assert gateway.chat().error == {
        "message": "stop holds 70 words; at most 64 are taken",
        "type": "invalid_request_error",
        "param": "stop",
        "code": None,
    }


def test_each_api_words_its_errors_its_own_way(gateway):
    body = {"model": "x", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    reply = gateway.post("/v1/messages", body)
    assert reply.json["type"] == "error" and reply.json["error"]["type"] == "not_found_error"
    assert reply.json["request_id"] == reply.headers["x-request-id"]


def test_without_keys_it_answers_to_this_machines_names_alone(gateway):
    for name in ("localhost", f"127.0.0.1:{gateway.port}", "[::1]:9000", "LOCALHOST:1"):
        assert gateway.get("/v1/models", host=name).status == 200
    for name in ("evil.example", "evil.example:9000", "127.0.0.1.evil.example", ""):
        assert gateway.get("/v1/models", host=name).status == 403


def test_a_request_id_is_echoed_if_it_is_harmless_and_made_otherwise(gateway):
    assert gateway.get("/health", x_request_id="abc-1.2_3").headers["x-request-id"] == "abc-1.2_3"
    for strange in ("a b", "x" * 65, "<script>"):
        assert gateway.get("/health", x_request_id=strange).headers["x-request-id"] != strange


def test_the_log_holds_no_text_and_no_key(gateway):
    gateway.post(
        "/v1/chat/completions",
        {**CHAT, "messages": [{"role": "user", "content": "whispered words"}]},
        authorization="Bearer lr-very-secret",
    )
    gateway.post("/v1/chat/completions", {**CHAT, "messages": [{"role": "whispered", "content": "words"}]})
    assert "POST /v1/chat/completions status=200" in gateway.log
    assert "whispered" not in gateway.log and "lr-very-secret" not in gateway.log


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("prompt", "ends"), [("a secret thing", "content_filter"), ("a thing", "stop")])
def test_a_structured_answer_in_which_something_was_hidden_ends_as_content_filter(gateway, prompt, ends, stream):
    reply = gateway.chat(prompt, response_format={"type": "json_object"}, stream=stream)
    choices = (
        [choice for event in reply.events[:-1] for choice in event["choices"]] if stream else reply.json["choices"]
    )
    assert choices[-1]["finish_reason"] == ends
