"""What the router, Triton's core and gRPC say went wrong, as failures of this gateway in the client's words."""

from __future__ import annotations

import logging
import re

import grpc

from gateway.failures import Away, BadRequest, Broken, Failure, NotFound, Overloaded, TimedOut

_GONE = "the server behind the gateway is away; try again in a moment"
# What Triton's core says for itself (2.51), without a word in brackets.
_CORE_WORDS: tuple[tuple[str, type[Failure], str], ...] = (
    ("Exceeds maximum queue size", Overloaded, "too many requests are waiting; try again in a moment"),
    ("Request timeout expired", TimedOut, "the request waited too long in the server's queue"),
    ("is not ready", Away, _GONE),
    ("is not found", Away, _GONE),
    ("has no available versions", Away, _GONE),
    ("is not healthy", Away, _GONE),
)
_BY_WORD: dict[str, type[Failure]] = {
    "BAD_REQUEST": BadRequest,
    "BUSY": Overloaded,
    "UNAVAILABLE": Away,
    "TIMEOUT": TimedOut,
}
# The router's names for what OpenAI's API calls otherwise; `text_input` is a completion's prompt.
_NAMES = {
    "stop_words": "stop",
    "text_input": "prompt",
    "exclude_input_in_output": "echo",
    "guided_decoding_guide": "response_format",
    "guided_decoding_guide_type": "response_format",
}
_OUR_NAME = re.compile(rf"\b({'|'.join(_NAMES)})\b")
_CONTEXT = re.compile(r"the context of \S+ holds (\d+)")
_PLACE = re.compile(r"([a-z_]+)(\[\d+\]|\.[a-z_]+)*(?![\w.])")  # such as messages[2].content[0].text
_PARAMS = {
    "messages", "prompt", "stop", "max_tokens", "temperature", "top_p", "top_k", "seed", "min_tokens", "user",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words", "response_format", "echo",
    "chat_template_kwargs",
}  # fmt: skip


def from_message(message: str) -> Failure:
    """The failure that an error message of a stream or a call stands for."""
    found = re.search(r"\[([A-Z_]+)\] (.*)", message, re.DOTALL)
    if found and found[1] == "BAD_REQUEST":
        return _bad_request(found[2])
    if found and found[1] == "REFUSED":
        return refused(found[2])
    if found and found[1] in _BY_WORD:
        return _BY_WORD[found[1]](found[2])
    for text, kind, told in _CORE_WORDS:
        if text in message:
            return kind(told)
    # It may hold paths and stacks, so it is not for the client.
    logging.error("the server failed: %s", message[:2000])
    return Broken("the engine failed; the server's log says why")


def refused(why: str) -> Failure:
    """Of a prompt that the policy turns away, in OpenAI's words, by which LiteLLM knows it."""
    said = f"the request was rejected as a result of the safety system: {why}"
    return BadRequest(said, None, "content_policy_violation")


def from_rpc(error: grpc.aio.AioRpcError) -> Failure:
    """The failure that the end of an RPC stands for."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut("the answer did not end in time")
    # The second is what grpc.aio says of a connection that has just gone.
    if code is grpc.StatusCode.UNAVAILABLE or details == "Internal error from Core":
        return from_message(details) if "[" in details else Away(_GONE)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Broken("the answer is larger than the gateway takes")
    if code is grpc.StatusCode.CANCELLED:
        return Away(_GONE)
    return from_message(details)


def _bad_request(text: str) -> Failure:
    text = _OUR_NAME.sub(lambda name: _NAMES[name[1]], text)
    if text.startswith("tier is "):
        return NotFound(f"the model does not exist: {text.removeprefix('tier is ')}", "model", "model_not_found")
    if context := _CONTEXT.search(text):
        # OpenAI's words first: LiteLLM and others know it by them rather than by the code.
        said = f"this model's maximum context length is {context[1]} tokens; {text}"
        return BadRequest(said, "messages", "context_length_exceeded")
    place = _PLACE.match(text)
    return BadRequest(text, place[0] if place and place[1] in _PARAMS else None)
