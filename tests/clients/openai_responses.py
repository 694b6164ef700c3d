"""The openai package's /v1/responses, /v1/embeddings and structured output."""

from __future__ import annotations

import base64
from typing import Any

import openai
from checks import PROMPT, check, given, run
from openai import OpenAI

URL, KEY = given()
client = OpenAI(base_url=f"{URL}/v1", api_key=KEY)


@check
def a_response_has_its_text() -> None:
    found = client.responses.create(model="auto", input=PROMPT, instructions="Be brief.", max_output_tokens=60)
    assert PROMPT in found.output_text and found.status in ("completed", "incomplete")
    assert found.usage is not None and found.usage.output_tokens > 2


@check
def a_stream_of_events_is_numbered_and_complete() -> None:
    messages: Any = [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]
    events = list(client.responses.create(model="auto", input=messages, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-1] == "response.completed", kinds[-1]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text and PROMPT in text


@check
def the_stream_helper_ends_with_the_whole() -> None:
    with client.responses.stream(model="auto", input=PROMPT) as stream:
        for _ in stream:
            pass
        assert PROMPT in stream.get_final_response().output_text


@check
def what_needs_a_memory_is_refused_by_name() -> None:
    for name, value in (("previous_response_id", "resp_1"), ("background", True), ("store", True)):
        try:
            client.responses.create(model="auto", input=PROMPT, **{name: value})
        except openai.BadRequestError as error:
            assert error.param == name
        else:
            raise AssertionError(name)


@check
def a_tool_that_is_named_is_called() -> None:
    tools: Any = [
        {
            "type": "function",
            "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        }
    ]
    choice: Any = {"type": "function", "function": {"name": "add"}}
    messages: Any = [{"role": "user", "content": PROMPT}]
    found = client.chat.completions.create(
        model="auto", messages=messages, tools=tools, tool_choice=choice, max_tokens=50
    )
    call = found.choices[0].message.tool_calls[0]
    assert call.function.name == "add" and call.function.arguments
    stream = client.chat.completions.create(
        model="auto", messages=messages, tools=tools, tool_choice=choice, max_tokens=50, stream=True
    )
    deltas = [chunk.choices[0].delta.tool_calls[0] for chunk in stream if chunk.choices[0].delta.tool_calls]
    assert deltas[0].function.name == "add"
    assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
    try:
        client.chat.completions.create(model="auto", messages=messages, tools=tools)
    except openai.BadRequestError as error:
        assert error.param == "tool_choice"
    else:
        raise AssertionError("no error")


@check
def embeddings_come_as_floats_and_as_base64() -> None:
    if "text-classifier-embedding" not in [model.id for model in client.models.list()]:
        return
    found = client.embeddings.create(model="text-classifier-embedding", input=["one", "two words"])
    assert [len(each.embedding) for each in found.data] == [384, 384] and found.usage.prompt_tokens > 2
    raw: Any = client.embeddings.create(model="text-classifier-embedding", input="one", encoding_format="base64")
    assert len(base64.b64decode(raw.data[0].embedding)) == 4 * 384


if __name__ == "__main__":
    run()
