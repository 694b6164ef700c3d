"""Anthropic's API."""

from __future__ import annotations

import json

import pytest

BODY = {"model": "auto", "max_tokens": 20, "messages": [{"role": "user", "content": "one two three"}]}


def events(reply):
    found = []
    for block in reply.text.split("\n\n")[:-1]:
        name, _, data = block.partition("\ndata: ")
        assert name == f"event: {json.loads(data)['type']}"
        found.append(json.loads(data))
    return found


def test_a_whole_answer(gateway):
    found = gateway.post("/v1/messages", BODY).json
    assert found["content"] == [{"type": "text", "text": "one two three"}]
    assert (found["type"], found["role"], found["stop_reason"]) == ("message", "assistant", "end_turn")
    assert found["usage"] == {"input_tokens": 3, "output_tokens": 3}


def test_a_stream_has_its_events_in_their_order(gateway):
    found = events(gateway.post("/v1/messages", {**BODY, "stream": True}))
    assert [event["type"] for event in found] == [
        "message_start",
        "content_block_start",
        "ping",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found[0]["message"]["usage"]["input_tokens"] == 3
    assert "".join(event["delta"]["text"] for event in found[3:6]) == "one two three"
    assert found[-2]["delta"]["stop_reason"] == "end_turn" and found[-2]["usage"]["output_tokens"] == 3


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_tokens": 2}, "max_tokens"),
        ({"stop_sequences": [" three"]}, "stop_sequence"),
        ({"messages": [{"role": "user", "content": "a bomb"}]}, "refusal"),
    ],
)
def test_how_it_ends(gateway, fields, reason):
    found = gateway.post("/v1/messages", {**BODY, **fields}).json
    assert found["stop_reason"] == reason
    assert found["stop_sequence"] == (" three" if reason == "stop_sequence" else None)


def test_the_system_prompt_comes_first_and_turns_are_as_they_came(gateway, fake):
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    gateway.post("/v1/messages", {**BODY, "system": "Be brief.", "messages": [{"role": "user", "content": parts}]})
    assert json.loads(fake.requests[-1]["messages"]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts},
    ]


def test_calls_of_tools_and_their_results_are_part_of_a_conversation(gateway, fake):
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "three four"}]}
    turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": [use]}]
    reply = gateway.post("/v1/messages", {**BODY, "messages": [*turns, {"role": "user", "content": [result]}]})
    assert "three four" in reply.json["content"][0]["text"]
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "one", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "three four"},
    ]
    body = {"model": "auto", "messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
    assert gateway.post("/v1/chat/completions", body).status == 200
    asked = fake.requests[-1]
    assert json.loads(asked["messages"]) == messages
    assert json.loads(asked["parameters"]["chat_template_kwargs"].string_param) == {"enable_thinking": False}


IMAGE = [{"type": "text", "text": "see"}, {"type": "image", "source": {}}]


@pytest.mark.parametrize(
    ("path", "fields", "place"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[1]"),
        ("/v1/messages", {"system": "Hi.", "messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[1]"),
        ("/v1/messages", {"system": IMAGE, "messages": BODY["messages"]}, "system.content[1]"),
        ("/v1/responses", {"input": [{"role": "user", "content": IMAGE}]}, "input[0].content[1]"),
        (
            "/v1/responses",
            {"instructions": "Hi.", "input": [{"role": "user", "content": IMAGE}]},
            "input[0].content[1]",
        ),
    ],
)
def test_what_is_wrong_with_a_message_is_named_as_the_client_sent_it(gateway, path, fields, place):
    body = {"model": "auto", **({"max_tokens": 9} if path == "/v1/messages" else {}), **fields}
    for stream in (False, True):
        error = gateway.post(path, {**body, "stream": stream}).error
        assert error["message"].startswith(f"{place} is an image"), error
        assert error.get("param", place) == place


def test_tokens_are_counted(gateway):
    counted = gateway.post("/v1/messages/count_tokens", {"model": "small", "messages": BODY["messages"]})
    assert counted.json["input_tokens"] > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"name": "f"}]},
        {"thinking": {"type": "enabled"}},
        {"max_tokens": None},
        {"messages": [{"role": "system", "content": "hi"}]},
    ],
)
def test_what_is_not_supported_is_a_bad_request_in_its_own_words(gateway, fields):
    reply = gateway.post("/v1/messages", {**BODY, **fields})
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")


def test_a_stream_that_breaks_ends_with_its_own_error_event(gateway, fake):
    fake.failures.append(("[INTERNAL] the engine failed", 2))
    found = events(gateway.post("/v1/messages", {**BODY, "stream": True}))
    assert found[-1]["type"] == "error" and found[-1]["error"]["type"] == "api_error"


def test_a_stream_of_responses_that_breaks_ends_with_its_own_too(gateway, fake):
    fake.failures.append(("[INTERNAL] the engine failed", 2))
    reply = gateway.post("/v1/responses", {"model": "auto", "input": "one two three", "stream": True})
    found = events(reply)
    assert found[-1]["type"] == "error"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
