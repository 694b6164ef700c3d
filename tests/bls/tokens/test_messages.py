"""What clients of OpenAI's and of Anthropic's API send as messages, and the turns of it that are judged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.errors import BadRequest
from bls.tokens.messages import Turn, read_conversation, read_messages, turns_of, written

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "\\u5317\\u4eac"}'}}
READ_CALL = {**CALL, "function": {"name": "weather", "arguments": '{"city": "北京"}'}}

# What a client sends, and the one form of it.
SENT = {
    "parts": (
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
        [{"role": "user", "content": "Hello"}],
    ),
    "parts with a cache mark, and a plain string": (
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "b"]},
        [{"role": "user", "content": "ab"}],
    ),
    "OpenAI's SDK sends its own answer back": (
        {"role": "assistant", "content": "Hi", "refusal": None, "annotations": [], "audio": None, "tool_calls": None},
        [{"role": "assistant", "content": "Hi"}],
    ),
    "a call": (
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        [{"role": "assistant", "content": "", "tool_calls": [READ_CALL]}],
    ),
    "a call without content": (
        {"role": "assistant", "tool_calls": [CALL]},
        [{"role": "assistant", "content": "", "tool_calls": [READ_CALL]}],
    ),
    "a call of before": (
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "not JSON"}},
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "not JSON"}}],
            }
        ],
    ),
    "its result": (
        {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": [{"type": "text", "text": "12"}]},
        [{"role": "tool", "content": "12", "name": "weather", "tool_call_id": "call_1"}],
    ),
    "a refusal": (
        {"role": "assistant", "content": None, "refusal": "No."},
        [{"role": "assistant", "content": "No."}],
    ),
    "a developer and a name": (
        {"role": "developer", "content": "Be brief.", "name": "ops"},
        [{"role": "developer", "content": "Be brief.", "name": "ops"}],
    ),
    "Anthropic's thinking and call": (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            ],
        },
        [
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"type": "function", "id": "t1", "function": {"name": "look", "arguments": '{"at": 1}'}}
                ],
            }
        ],
    ),
    "Anthropic's results, and what the user adds": (
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a cat"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "a dog", "is_error": False},
                {"type": "text", "text": "And now?"},
            ],
        },
        [
            {"role": "tool", "content": "a cat", "tool_call_id": "t1"},
            {"role": "tool", "content": "a dog", "tool_call_id": "t2"},
            {"role": "user", "content": "And now?"},
        ],
    ),
}


@pytest.mark.parametrize(("sent", "form"), SENT.values(), ids=SENT)
def test_what_clients_send_has_one_form(sent, form):
    assert read_messages(json.dumps([sent])) == form
    assert read_messages(json.dumps(form)) == form


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
            "messages[1].content[0] is an image (image_url), which is not supported: only text is",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]},
            "messages[1].content[1] is an image (image), which is not supported: only text is",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "messages[1].content[0] is audio (input_audio), which is not supported: only text is",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {}}]},
            "messages[1].content[0] is a file (file), which is not supported: only text is",
        ),
        (
            {"role": "user", "content": [{"type": "document", "source": {}}]},
            "messages[1].content[0] is a document (document), which is not supported: only text is",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]},
            "messages[1].content[0].content[0] is an image (image), which is not supported: only text is",
        ),
        (
            {"role": "user", "content": [{"type": "poem", "text": "a"}]},
            "messages[1].content[0] has type 'poem', which is not supported: only text is",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text is missing"),
        (
            {"role": "user", "content": [7]},
            "messages[1].content[0] must be a text part, such as {type: text, text: ...}",
        ),
        ({"role": "user", "content": {"text": "a"}}, "messages[1].content must be a string or a list of text parts"),
        (
            {"role": "user"},
            "messages[1].content is missing; only an assistant's or a tool's message may have none (role user)",
        ),
        (
            {"role": "assistant", "audio": {"id": "a"}},
            "messages[1].audio is audio, which is not supported: only text is",
        ),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[1].tool_calls[0] must be an object with a function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
            "messages[1].tool_calls[0].function.name is missing",
        ),
        ({"role": "tool", "content": "a", "tool_call_id": 7}, "messages[1].tool_call_id must be a string"),
        (
            {"role": "user", "content": "a", "name": "n" * 257},
            "messages[1].name has 257 characters; at most 256 are taken",
        ),
        (
            {"role": "user", "contents": "a"},
            "messages[1].contents is not known; a message has role, content, name, tool_calls, tool_call_id",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_number_of_the_turn(message, complaint):
    with pytest.raises(BadRequest) as caught:
        read_messages(json.dumps([{"role": "user", "content": "hi"}, message]))
    assert str(caught.value) == f"[BAD_REQUEST] {complaint}"


def test_the_numbers_are_the_clients_where_a_message_becomes_several():
    results, _ = SENT["Anthropic's results, and what the user adds"]
    assert read_conversation(json.dumps([results, {"role": "user", "content": "b"}])).places == [0, 0, 0, 1]


def test_all_that_a_template_may_write_is_judged_each_letter_as_itself():
    messages = json.dumps(
        [{"role": "assistant", "content": [{"type": "text", "text": "a"}, "b"], "tool_calls": [CALL]}]
    )
    assert turns_of("", messages) == [
        Turn("assistant", "ab"),
        Turn("assistant", "weather"),
        Turn("assistant", '{"city": "北京"}'),
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CALLS = st.builds(lambda name, arguments: {"function": {"name": name, "arguments": arguments}}, TEXTS, TEXTS)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool"]), "content": TEXTS | st.lists(TEXTS, max_size=3)},
            optional={
                "name": TEXTS,
                "tool_calls": st.lists(
                    st.builds(
                        lambda name, arguments: {"function": {"name": name, "arguments": arguments}}, TEXTS, TEXTS
                    ),
                    max_size=2,
                ),
            },
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_again_unchanged_is_the_same(messages):
    text = json.dumps(messages)
    turns = turns_of("", text)
    assert read_messages(written(text, turns)) == read_messages(text)
    assert turns_of("", written(text, turns)) == turns


def test_a_text_that_was_masked_stands_where_it_stood():
    messages = json.dumps([{"role": "user", "content": ["secr", "et"]}, {"role": "assistant", "tool_calls": [CALL]}])
    turns = [Turn(turn.role, turn.text.replace("secret", "******")) for turn in turns_of("", messages)]
    assert [message["content"] for message in read_messages(written(messages, turns))] == ["******", ""]
    assert read_messages(written(messages, turns))[1]["tool_calls"] == [READ_CALL]
