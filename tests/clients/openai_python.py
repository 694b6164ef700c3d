"""The openai package, as it comes, sync and async."""

from __future__ import annotations

from typing import Any

import openai
from checks import ENDLESS, PROMPT, check, given, run
from openai import AsyncOpenAI, OpenAI

URL, KEY = given()
MESSAGES: Any = [{"role": "user", "content": PROMPT}]
client = OpenAI(base_url=f"{URL}/v1", api_key=KEY)


def chat(**fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "auto", "messages": MESSAGES, "max_tokens": 50, **fields})


def text_of(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@check
def models_are_listed_and_found() -> None:
    names = [model.id for model in client.models.list()]
    assert names[:3] == ["auto", "small", "large"], names
    assert client.models.retrieve("auto").id == "auto"


@check
def a_chat_is_answered_with_its_usage() -> None:
    found = chat()
    assert PROMPT in found.choices[0].message.content, found
    assert found.choices[0].message.role == "assistant"
    assert found.choices[0].finish_reason in ("stop", "length")
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens > 3


@check
def a_stream_says_the_same_as_the_whole() -> None:
    assert text_of(chat(stream=True)) == chat().choices[0].message.content


@check
def a_stream_ends_with_its_usage_when_that_is_wanted() -> None:
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert chunks[-2].choices[0].finish_reason in ("stop", "length")
    assert len({chunk.id for chunk in chunks}) == 1


@check
def stop_words_end_the_answer() -> None:
    found = client.completions.create(model="auto", prompt="one two three", max_tokens=50, stop=[" three", "xyz"])
    assert (found.choices[0].text, found.choices[0].finish_reason) == ("one two", "stop")


@check
def several_answers_have_their_places() -> None:
    found = chat(n=2, seed=5)
    assert [choice.index for choice in found.choices] == [0, 1]
    assert found.usage.completion_tokens % 2 == 0


@check
def a_limit_ends_as_length() -> None:
    found = client.completions.create(model="auto", prompt=PROMPT, max_tokens=2)
    assert found.choices[0].finish_reason == "length" and found.usage.completion_tokens == 2


@check
def without_a_limit_nothing_is_cropped() -> None:
    found = client.chat.completions.create(model="auto", messages=MESSAGES)
    assert PROMPT in (found.choices[0].message.content or "") and found.choices[0].finish_reason == "stop"


@check
def an_unknown_model_is_not_found() -> None:
    try:
        chat(model="gpt-99")
    except openai.NotFoundError as error:
        assert (error.code, error.param) == ("model_not_found", "model")
    else:
        raise AssertionError("no error")


@check
def a_bad_value_is_a_bad_request_with_its_name() -> None:
    try:
        chat(temperature=9)
    except openai.BadRequestError as error:
        assert error.param == "temperature" and error.request_id
    else:
        raise AssertionError("no error")


@check
def too_long_a_prompt_is_told_so() -> None:
    try:
        chat(max_tokens=100_000)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded"
    else:
        raise AssertionError("no error")


@check
def the_route_is_in_the_headers() -> None:
    raw = client.chat.completions.with_raw_response.create(model="auto", messages=MESSAGES, max_tokens=50)
    assert raw.headers["x-router-model"].startswith("tensorrt_llm_") and raw.headers["x-router-reason"]
    assert raw.parse().system_fingerprint.startswith("fp_")


@check
def a_stream_can_be_left() -> None:
    stream = chat(stream=True, max_tokens=2000, seed=ENDLESS + 5)
    next(iter(stream))
    stream.close()


@check
def a_prompt_is_completed_and_a_list_of_them() -> None:
    found = client.completions.create(model="auto", prompt=["one two", "three four"], max_tokens=50)
    assert [choice.text for choice in found.choices] == ["one two", "three four"]
    stream = client.completions.create(model="auto", prompt=PROMPT, max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == PROMPT


@check
def stream_options_need_a_stream() -> None:
    try:
        chat(stream_options={"include_usage": True})
    except openai.BadRequestError as error:
        assert error.param == "stream_options"
    else:
        raise AssertionError("no error")


@check
async def many_are_answered_at_once() -> None:
    import asyncio

    async with AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY) as several:

        async def one(number: int) -> str:
            stream = await several.completions.create(
                model="auto", prompt=f"number {number} here", max_tokens=50, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

        found = await asyncio.gather(*map(one, range(16)))
        assert found == [f"number {number} here" for number in range(16)]


if __name__ == "__main__":
    run()
