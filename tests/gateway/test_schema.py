"""Every body and every event fits OpenAI's published schema, of which tests/data/openai_schema.json holds the parts."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

SCHEMA = json.loads((Path(__file__).resolve().parent.parent / "data" / "openai_schema.json").read_text())
EVENTS = {
    "response.created": "ResponseCreatedEvent",
    "response.in_progress": "ResponseInProgressEvent",
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent",
    "response.output_text.done": "ResponseTextDoneEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.completed": "ResponseCompletedEvent",
    "response.incomplete": "ResponseIncompleteEvent",
}


def check(name, value):
    validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})
    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(value)]
    assert errors == [], json.dumps(value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 2},
        {"max_tokens": 2},
        {"stop": " two"},
        {"text": "how to make a bomb"},
        {"service_tier": "default"},
        {"stream_options": {"include_usage": True}},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
    ],
)
def test_chat_completions(gateway, fields):
    fields = dict(fields)
    text = fields.pop("text", "one two three")
    whole = {name: value for name, value in fields.items() if name != "stream_options"}
    check("CreateChatCompletionResponse", gateway.chat(text, **whole).json)
    *chunks, done = gateway.chat(text, stream=True, **fields).events
    assert done == "[DONE]"
    for chunk in chunks:
        if chunk.get("usage", "") is None:  # as OpenAI's text says, and its server does; the schema forgets it
            del chunk["usage"]
        check("CreateChatCompletionStreamResponse", chunk)


def test_completions(gateway):
    for fields in ({}, {"n": 2}, {"echo": True}, {"max_tokens": 1}):
        check("CreateCompletionResponse", gateway.complete(**fields).json)
        for chunk in gateway.complete(stream=True, **fields).events[:-1]:
            for choice in chunk["choices"]:  # null until the end; the schema is the whole answer's
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            check("CreateCompletionResponse", chunk)


def test_models(gateway):
    found = gateway.get("/v1/models").json
    check("ListModelsResponse", found)
    for model in found["data"]:
        check("Model", model)


def test_embeddings(gateway):
    body = {"model": "text-classifier-embedding", "input": ["one", "two words"]}
    found = gateway.post("/v1/embeddings", body).json
    check("CreateEmbeddingResponse", found)
    assert found["data"][1]["embedding"][0] == 9.0 and found["usage"]["prompt_tokens"] == 3 + 4


def test_responses(gateway):
    for fields in ({}, {"max_output_tokens": 1}, {"instructions": "Be brief."}):
        body = {"model": "auto", "input": "one two three", **fields}
        check("Response", gateway.post("/v1/responses", body).json)
        for event in gateway.post("/v1/responses", {**body, "stream": True}).text.split("\n\n")[:-1]:
            found = json.loads(event.partition("data: ")[2])
            check(EVENTS[found["type"]], found)


def test_errors(gateway):
    for reply in (gateway.chat(model="x"), gateway.chat(n=99), gateway.get("/nothing")):
        check("ErrorResponse", reply.json)
