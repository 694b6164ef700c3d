"""Chat messages to the token ids of a prompt, by the template that a model brings with it.

The environment is that of Hugging Face's apply_chat_template, since templates are written for it. What differs: the
name of a special token within a message is only characters here, so that no user can end their turn and speak as the
system.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bls.errors import BadRequest, EngineFailed
from bls.tokens.message_form import Message
from bls.tokens.template_messages import check_whole, each_text, first_refused, fitted, names_of, texts_in
from bls.tokens.tokenizer import Tokenizer

_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # Unicode's noncharacters: for internal use, never in text.


NO_VALUES: Mapping[str, Any] = MappingProxyType({})


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

    def render(self, messages: Sequence[Message], values: Mapping[str, Any] = NO_VALUES) -> str:
        """The prompt, up to where the assistant speaks; `values` are further variables of the template.

        Raises BadRequest with what the template objects to.
        """
        own = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True, **self._tokens}
        try:
            return self._template.render({**values, **own})
        except jinja2.TemplateError as error:
            raise BadRequest(f"messages do not fit the model's chat template: {error}") from None
        except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise BadRequest(f"messages do not fit the model's chat template: {type(error).__name__}") from None


class _Rendered(NamedTuple):
    messages: list[Message]
    values: dict[str, Any]


class Chat:
    """A tokenizer and its template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        source, settings = tokenizer.chat_template, tokenizer.settings
        self._source = source or ""
        self._template = ChatTemplate(source, settings.bos_token, settings.eos_token) if source else None

    def encode(
        self,
        messages: Sequence[Message],
        values: Mapping[str, Any] = NO_VALUES,
        places: Sequence[int] | None = None,
    ) -> list[int]:
        """Ids of the whole prompt; it has the BOS that the template writes, no other.

        `values` are further variables of the template, `places` the messages' numbers in errors. Raises BadRequest.
        """
        if self._template is None:
            raise BadRequest("the model has no chat template: send a plain prompt")
        names = names_of(messages, places)
        marked, mark = self._mark_special(fitted(messages, self._source), dict(values))
        render = partial(self._template.render, values=marked.values)
        try:
            text = render(marked.messages)
        except BadRequest as error:
            raise first_refused(marked.messages, names, error, render) from None
        check_whole(marked.messages, names, text)
        return self._encode_marked(text, mark) if mark else self._tokenizer.encode(text, add_special_tokens=False)

    def _mark_special(self, messages: list[Message], values: dict[str, Any]) -> tuple[_Rendered, str]:
        """Both with a mark inside each special token's name, and the mark; "" where there is no such name."""
        texts = list(texts_in([messages, values]))
        special = self._tokenizer.special_ids
        if all(part not in special for text in texts for part in self._tokenizer.split_special(text)):
            return _Rendered(messages, values), ""
        mark = next((mark for mark in _MARKS if not any(mark in text for text in texts)), None)
        if mark is None:
            raise BadRequest("messages contain every noncharacter from U+FDD0 to U+FDEF")
        return _Rendered(*each_text([messages, values], lambda text: self._mark(text, mark))), mark

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
