"""The anthropic package, as it comes."""

from __future__ import annotations

from typing import Any

import anthropic
from checks import PROMPT, check, given, run

URL, KEY = given()
client = anthropic.Anthropic(base_url=URL, api_key=KEY)
MESSAGES: Any = [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]


@check
def a_message_is_answered() -> None:
    found = client.messages.create(model="auto", max_tokens=60, system="Be brief.", messages=MESSAGES)
    assert PROMPT in found.content[0].text, found
    assert found.stop_reason in ("end_turn", "max_tokens") and found.usage.output_tokens > 2


@check
def a_stream_says_the_same() -> None:
    with client.messages.stream(model="auto", max_tokens=60, messages=MESSAGES) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert PROMPT in text and last.content[0].text == text and last.usage.input_tokens > 2


@check
def tokens_are_counted() -> None:
    counted = client.messages.count_tokens(model="auto", messages=MESSAGES).input_tokens
    assert counted == client.messages.create(model="auto", max_tokens=60, messages=MESSAGES).usage.input_tokens > 2


@check
def errors_are_of_their_classes() -> None:
    for kind, fields in (
        (anthropic.NotFoundError, {"model": "claude"}),
        (anthropic.BadRequestError, {"model": "auto", "extra_body": {"top_p": 7}}),
    ):
        try:
            client.messages.create(**{"max_tokens": 5, "messages": MESSAGES, **fields})
        except kind as error:
            assert error.body["error"]["type"], error.body
        else:
            raise AssertionError(kind)


if __name__ == "__main__":
    run()
