"""One request of a client: read from arrays once, checked where it is made, so that no later line wonders."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bls.arrays import Array, read_text
from bls.contract import ROUTER_CONTRACT
from bls.errors import BadRequest
from bls.reply import LOG_PROBS

# Taken by tensorrt_llm_bls, refused by name here: the engines behind it would need more than token ids.
_REFUSED = (
    "decoder_text_input",
    "image_input",
    "image_bytes_input",
    "image_url_input",
    "video_bytes_input",
    "prompt_embedding_table",
    "prompt_vocab_size",
    "prompt_table_extra_id",
    "embedding_bias_words",
    "embedding_bias_weights",
    "num_draft_tokens",
    "use_draft_logits",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "return_context_logits",
    "return_generation_logits",
    "return_perf_metrics",
)

# Router name -> engine name, of what goes to the engine as it came; the engine checks the values.
_TO_ENGINE = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "temperature": "temperature",
    "length_penalty": "len_penalty",
    "repetition_penalty": "repetition_penalty",
    "min_tokens": "min_tokens",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "return_log_probs": "return_log_probs",
    "guided_decoding_guide_type": "guided_decoding_guide_type",
    "guided_decoding_guide": "guided_decoding_guide",
}

# What may stand beside the tensors. Any other key is a misspelt input: /generate turns those into parameters.
_FOR_POLICY = ("tenant", "user", "tier")
REQUEST_PRIORITY = "request_priority"  # The priority, where Triton keeps "priority" for its scheduler: gRPC and infer.
_OF_TRITON = ("id", "timeout", "priority", "sequence_id", "sequence_start", "sequence_end", "binary_data_output")
_PARAMETERS = frozenset((*_OF_TRITON, REQUEST_PRIORITY, *_FOR_POLICY))
MAX_NAME_CHARACTERS = 256
WHAT_FITS = -1  # max_tokens: as many as the context of the engine that answers has room for

# Each word is looked for at each character of the answer.
MAX_WORDS = 64
MAX_WORD_CHARACTERS = 256

# What the models behind the router call its inputs, where they call them something else.
_CLIENT_NAMES = {
    **{theirs: ours for ours, theirs in _TO_ENGINE.items() if ours != theirs},
    "request_output_len": "max_tokens",
    "QUERY": "text_input",
    "MESSAGES": "messages",
    "STOP_WORDS_DICT": "stop_words",
    "stop_words_list": "stop_words",
    "END_ID": "end_id",
    "PAD_ID": "pad_id",
}
_ENGINE_NAME = re.compile(rf"\b({'|'.join(_CLIENT_NAMES)})\b")

_FLAGGED_OUTPUTS = {
    "return_num_input_tokens": ("num_input_tokens",),
    "return_num_output_tokens": ("num_output_tokens",),
    "return_log_probs": LOG_PROBS,
    "return_route_info": ("model", "reason", "words_version", "verdict", "verdict_reason", "route_info"),
}


@dataclass(frozen=True)
class Request:
    """`sampling` is by engine tensor name, shape [1,1]; `outputs` are the router's outputs that the client wants."""

    id: str
    text: str
    messages: str
    apply_chat_template: bool
    max_tokens: int
    stream: bool
    echo: bool
    stop_words: tuple[str, ...]
    bad_words: tuple[str, ...]
    end_id: int | None
    pad_id: int | None
    sampling: Mapping[str, Array]
    outputs: frozenset[str]
    timeout_seconds: float | None
    tenant: str = ""
    user: str = ""
    wanted: str = ""  # The tier or engine model that the parameter `tier` names.
    priority: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


def parse(
    tensors: Mapping[str, Array],
    parameters: Mapping[str, Any],
    requested: frozenset[str],
    request_id: str = "",
    timeout_us: int = 0,
    more_parameters: Sequence[str] = (),
) -> Request:
    """Reads what Triton gives: inputs by name, parameters, requested output names, id, scheduler timeout in us.

    `more_parameters` are those that the policy wants to know of. Raises BadRequest that names the field.
    """
    _check_parameters(parameters, more_parameters)
    fields = _Fields(tensors)
    for name in _REFUSED:
        if fields.means_something(name):
            raise BadRequest(f"{name} is not supported by llm_router")
    for name in ("beam_width", "num_return_sequences"):
        if (fields.integer(name) or 1) != 1:
            raise BadRequest(f"{name} is {fields.integer(name)}; llm_router supports 1")
    text, messages = fields.string("text_input") or "", fields.string("messages") or ""
    if not text and not messages:
        raise BadRequest("text_input is empty" if "text_input" in tensors else "text_input is missing")
    if text and messages:
        raise BadRequest("text_input and messages are both given; send one of them")
    return Request(
        id=request_id,
        text=text,
        messages=messages,
        apply_chat_template=fields.flag("apply_chat_template"),
        max_tokens=_max_tokens(fields),
        stream=fields.flag("stream"),
        # The peer echoes the prompt by default, and only without streaming; here it is asked for, and the same in both.
        echo=not fields.flag("exclude_input_in_output", default=True),
        stop_words=fields.words("stop_words"),
        bad_words=fields.words("bad_words"),
        end_id=fields.integer("end_id"),
        pad_id=fields.integer("pad_id"),
        sampling={ours: fields.single(name).reshape(1, 1) for name, ours in _TO_ENGINE.items() if name in tensors},
        outputs=_outputs(fields, requested),
        timeout_seconds=_timeout_seconds(parameters, timeout_us),
        tenant=_name(parameters, "tenant"),
        user=_name(parameters, "user"),
        wanted=_name(parameters, "tier"),
        priority=_priority(parameters),
        parameters={name: parameters[name] for name in more_parameters if name in parameters},
    )


def with_client_names(error: BadRequest) -> BadRequest:
    """The same refusal of a model behind the router, with the fields named as the client sent them."""
    return BadRequest(_ENGINE_NAME.sub(lambda found: _CLIENT_NAMES[found[0]], error.reason))


def _max_tokens(fields: _Fields) -> int:
    max_tokens = fields.integer("max_tokens")
    if max_tokens is None:
        raise BadRequest("max_tokens is missing")
    if max_tokens < 1 and max_tokens != WHAT_FITS:
        raise BadRequest(f"max_tokens is {max_tokens}; it must be a single value > 0")
    return max_tokens


def _outputs(fields: _Fields, requested: frozenset[str]) -> frozenset[str]:
    """As named; without names (/generate can't name any), what a reader needs and what the return_* flags ask for."""
    flagged = [name for flag, names in _FLAGGED_OUTPUTS.items() if fields.flag(flag) for name in names]
    named = requested if requested != ROUTER_CONTRACT.output_names else {"text_output", "finish_reason"}
    wanted = frozenset(named).union(flagged)
    return wanted if fields.flag("return_log_probs") else wanted.difference(LOG_PROBS)


def _timeout_seconds(parameters: Mapping[str, Any], timeout_us: int) -> float | None:
    """The scheduler's timeout (gRPC, infer) or the parameter of that name (/generate); in microseconds, 0 = none."""
    value = timeout_us or parameters.get("timeout", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadRequest(f"timeout is {value!r}; it must be a whole number of microseconds >= 0")
    return value / 1e6 if value else None


def _name(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARACTERS:
        raise BadRequest(f"{name} must be a string of at most {MAX_NAME_CHARACTERS} characters")
    return value


def _priority(parameters: Mapping[str, Any]) -> int:
    name = REQUEST_PRIORITY if REQUEST_PRIORITY in parameters else "priority"
    value = parameters.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{name} is {value!r}; it must be a whole number")
    return value


def _check_parameters(parameters: Mapping[str, Any], more: Sequence[str]) -> None:
    for name in parameters:
        if name in _PARAMETERS or name in more or name.startswith("triton_"):
            continue
        near = difflib.get_close_matches(name, ROUTER_CONTRACT.input_names | _PARAMETERS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadRequest(f"{name} is not an input or parameter of llm_router{hint}")


class _Fields:
    """Reads single values out of arrays of any shape, with errors that name the field."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors

    def single(self, name: str) -> Array:
        array = self._tensors[name]
        if array.size != 1:
            raise BadRequest(f"{name} holds {array.size} values; it must be a single value")
        return array

    def means_something(self, name: str) -> bool:
        """Whether it was given and is not empty, false or 0: clients send those for "not used"."""
        array = self._tensors.get(name)
        return array is not None and any(value not in (b"", "") and bool(value) for value in array.flat)

    def integer(self, name: str) -> int | None:
        return int(self.single(name).flat[0]) if name in self._tensors else None

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.single(name).flat[0]) if name in self._tensors else default

    def string(self, name: str) -> str | None:
        return read_text(self.single(name).flat[0], name) if name in self._tensors else None

    def words(self, name: str) -> tuple[str, ...]:
        """The strings that are not empty: clients of the peer send [""] for none."""
        values = self._tensors[name].flat if name in self._tensors else ()
        words = tuple(text for text in (read_text(value, name) for value in values) if text)
        if len(words) > MAX_WORDS:
            raise BadRequest(f"{name} holds {len(words)} words; at most {MAX_WORDS} are taken")
        if any(len(word) > MAX_WORD_CHARACTERS for word in words):
            longest = max(map(len, words))
            raise BadRequest(f"{name} holds a word of {longest} characters; at most {MAX_WORD_CHARACTERS} are taken")
        return words
