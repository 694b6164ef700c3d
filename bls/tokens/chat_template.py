"""Chat messages to the token ids of a prompt, by the template that a model brings with it.

The environment is that of Hugging Face's apply_chat_template, since templates are written for it. What differs: the
name of a special token within a message is only characters here, so that no user can end their turn and speak as the
system.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bls.errors import BadRequest, EngineFailed
from bls.tokens.messages import Message
from bls.tokens.tokenizer import Tokenizer

_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # Unicode's noncharacters: for internal use, never in text.


class ChatTemplate:
    """One model's template. Building it raises EngineFailed if the template itself is broken."""

    def __init__(self, source: str, bos_token: str | None, eos_token: str | None) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise EngineFailed(f"the model's chat template is broken: {error}") from None

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, up to where the assistant speaks. Raises BadRequest with what the template objects to."""
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._tokens
            )
        except jinja2.TemplateError as error:
            raise BadRequest(f"messages do not fit the model's chat template: {error}") from None
        except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise BadRequest(f"messages do not fit the model's chat template: {type(error).__name__}") from None


class Chat:
    """A tokenizer and its template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        source, settings = tokenizer.chat_template, tokenizer.settings
        self._template = ChatTemplate(source, settings.bos_token, settings.eos_token) if source else None

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the whole prompt; it has the BOS that the template writes, no other. Raises BadRequest."""
        if self._template is None:
            raise BadRequest("the model has no chat template: send a plain prompt")
        marked, mark = self._mark_special(messages)
        text = self._template.render(marked)
        return self._encode_marked(text, mark) if mark else self._tokenizer.encode(text, add_special_tokens=False)

    def _mark_special(self, messages: Sequence[Message]) -> tuple[Sequence[Message], str]:
        """The messages with a mark inside each special token's name, and the mark; "" where there is no such name."""
        values = [value for message in messages for value in message.values()]
        if all(
            part not in self._tokenizer.special_ids for value in values for part in self._tokenizer.split_special(value)
        ):
            return messages, ""
        mark = next((mark for mark in _MARKS if not any(mark in value for value in values)), None)
        if mark is None:
            raise BadRequest("messages contain every noncharacter from U+FDD0 to U+FDEF")
        return [{field: self._mark(value, mark) for field, value in message.items()} for message in messages], mark

    def _mark(self, value: str, mark: str) -> str:
        parts = self._tokenizer.split_special(value)
        return "".join(part[0] + mark + part[1:] if part in self._tokenizer.special_ids else part for part in parts)

    def _encode_marked(self, text: str, mark: str) -> list[int]:
        ids: list[int] = []
        for part in self._tokenizer.split_special(text):
            special = self._tokenizer.special_ids.get(part)
            ids += self._tokenizer.encode_literally(part.replace(mark, "")) if special is None else [special]
        return ids


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter would escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Generation(Extension):
    """{% generation %}: in templates it marks what a model is trained on; for a prompt it's only its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own name and kind.

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_body")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller: Callable[[], str]) -> str:
        return caller()
