"""The body of /v1/chat/completions, and what it asks the router for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from gateway.ask import Value
from gateway.body import Count, SamplingBody, decode
from gateway.failures import BadRequest

MAX_MESSAGES = 1024
Messages = Annotated[list[Raw], Meta(min_length=1, max_length=MAX_MESSAGES)]
_PLACE = re.compile(r"messages\[(\d+)\]")


class Function(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    parameters: dict[str, Any] | None = None


class Tool(Struct):
    type: str
    function: Function | None = None


class JsonSchema(Struct):
    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(Struct):
    type: str
    json_schema: JsonSchema | None = None


class ChatBody(SamplingBody, kw_only=True, forbid_unknown_fields=True):
    messages: Messages
    max_completion_tokens: Count | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None  # vLLM's and SGLang's
    # Refused where they ask for something.
    modalities: list[str] | None = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    functions: Any = None
    function_call: Any = None
    # Without an effect here, and without harm.
    parallel_tool_calls: Any = None
    verbosity: Any = None
    reasoning_effort: Any = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


_DECODER = msgspec.json.Decoder(ChatBody)


def read(body: bytes) -> ChatBody:
    """Raises BadRequest for what is not there, what is wrong and what can't be done."""
    chat = decode(body, _DECODER)
    if chat.top_logprobs is not None and not chat.logprobs:
        raise BadRequest("top_logprobs goes with logprobs only", "top_logprobs")
    if chat.logprobs:
        raise BadRequest("logprobs are not supported: they would tell the words that the filter masks", "logprobs")
    for name in ("audio", "prediction", "web_search_options", "functions", "function_call"):
        if getattr(chat, name) not in (None, [], {}, "none"):
            raise BadRequest(f"{name} is not supported", name)
    if chat.modalities not in (None, ["text"]):
        raise BadRequest("modalities other than text are not supported", "modalities")
    return chat


def messages_json(messages: Sequence[Raw | dict[str, Any]]) -> str:
    """The messages as they came, for the router, which reads all that clients send. Raises BadRequest."""
    joined = b",".join(bytes(each) if isinstance(each, Raw) else msgspec.json.encode(each) for each in messages)
    try:
        return f"[{joined.decode()}]"
    except UnicodeDecodeError:
        raise BadRequest("messages are not UTF-8", "messages") from None


@contextmanager
def names_of(rest: str, first: str = "") -> Iterator[None]:
    """Has errors of the block name what the client sent: `first` for the message that was put before its own, if any.

    `rest` is what its own are called, "input[]", or "input" where a text became the only one.
    """

    def named(found: re.Match[str]) -> str:
        place = int(found[1]) - bool(first)
        return first if place < 0 else rest.replace("[]", f"[{place}]")

    try:
        yield
    except BadRequest as error:
        for field in ("message", "param"):
            if text := getattr(error, field):
                setattr(error, field, _PLACE.sub(named, text))
        raise


def guide(chat: ChatBody) -> dict[str, Value]:
    """The router's inputs that hold an answer to a form. Raises BadRequest."""
    if tool := forced_tool(chat):
        return schema_guide(tool.parameters or {"type": "object"})
    return guide_of(chat.response_format)


def guide_of(form: ResponseFormat | None) -> dict[str, Value]:
    """The same, of a response_format."""
    if form is None or form.type == "text":
        return {}
    if form.type == "json_object":
        return {"guided_decoding_guide_type": "json"}
    if form.type != "json_schema":
        raise BadRequest("response_format.type must be text, json_object or json_schema", "response_format")
    if form.json_schema is None or form.json_schema.schema is None:
        raise BadRequest("response_format.json_schema.schema is missing", "response_format")
    return schema_guide(form.json_schema.schema)


def schema_guide(schema: Any) -> dict[str, Value]:
    return {
        "guided_decoding_guide_type": "json_schema",
        "guided_decoding_guide": msgspec.json.encode(schema).decode(),
    }


def forced_tool(chat: ChatBody) -> Function | None:
    """The tool that the answer must call; None for a plain answer. Raises BadRequest where the model would choose."""
    if not chat.tools or chat.tool_choice == "none":
        return None
    functions = [tool.function for tool in chat.tools if tool.function is not None]
    if len(functions) != len(chat.tools):
        raise BadRequest("tools must all be of type function", "tools")
    if chat.tool_choice == "required" and len(functions) == 1:
        return functions[0]
    if isinstance(chat.tool_choice, dict):
        named = chat.tool_choice.get("function")
        name = named.get("name") if isinstance(named, dict) else None
        for function in functions:
            if function.name == name:
                return function
        raise BadRequest("tool_choice names none of tools", "tool_choice")
    raise BadRequest(
        "the model can't choose among tools yet: set tool_choice to none, to one of them by its name, "
        "or to required where there is only one",
        "tool_choice",
    )
