"""One request of a client: read from arrays once, checked where it is made, so that no later line wonders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bls.arrays import Array, int32
from bls.contract import GREEDY_BELOW, PENALTIES, ROUTER_CONTRACT
from bls.errors import BadRequest
from bls.reply import LOG_PROBS, UNASKED_FOR
from bls.request_fields import Fields, with_todays_names
from bls.request_parameters import check_parameters, name_in, priority_of, template_values_of, timeout_seconds

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

WHAT_FITS = -1  # max_tokens: as many as the context of the engine that answers has room for

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
    template_values: Mapping[str, Any] = field(default_factory=dict)  # for the chat template

    @property
    def is_guided(self) -> bool:
        """Whether the answer has a structure, which the engine may have to compile first."""
        return "guided_decoding_guide_type" in self.sampling


@dataclass(frozen=True)
class Defaults:
    """What holds for requests that don't say, as llm_router/config.pbtxt has it. Without max_tokens it's mandatory."""

    apply_chat_template: bool = False
    max_tokens: int | None = None


NO_DEFAULTS = Defaults()


def parse(
    tensors: Mapping[str, Array],
    parameters: Mapping[str, Any],
    requested: frozenset[str],
    request_id: str = "",
    timeout_us: int = 0,
    more_parameters: Sequence[str] = (),
    template_names: Sequence[str] = (),
    defaults: Defaults = NO_DEFAULTS,
) -> Request:
    """Reads what Triton gives: inputs by name, parameters, requested output names, id, scheduler timeout in us.

    `more_parameters` are those that the policy wants to know of, `template_names` those of the chat template that it
    lets requests set. Raises BadRequest that names the field.
    """
    check_parameters(parameters, more_parameters)
    tensors = with_todays_names(tensors)
    fields = Fields(tensors)
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
    is_chat = bool(messages) or fields.flag("apply_chat_template", defaults.apply_chat_template)
    template_values = template_values_of(parameters, template_names)
    if template_values and not is_chat:
        raise BadRequest("chat_template_kwargs has no effect: send messages, or apply_chat_template with text_input")
    return Request(
        id=request_id,
        text=text,
        messages=messages,
        apply_chat_template=is_chat and not messages,
        max_tokens=_max_tokens(fields, defaults.max_tokens),
        stream=fields.flag("stream"),
        # The peer echoes the prompt by default, and only without streaming; here it is asked for, and the same in both.
        echo=not fields.flag("exclude_input_in_output", default=True),
        stop_words=fields.words("stop_words"),
        bad_words=fields.words("bad_words"),
        end_id=fields.integer("end_id"),
        pad_id=fields.integer("pad_id"),
        sampling=_sampling(fields, tensors),
        outputs=_outputs(fields, requested),
        timeout_seconds=timeout_seconds(parameters, timeout_us),
        tenant=name_in(parameters, "tenant"),
        user=name_in(parameters, "user"),
        wanted=name_in(parameters, "tier"),
        priority=priority_of(parameters),
        parameters={name: parameters[name] for name in more_parameters if name in parameters},
        template_values=template_values,
    )


def with_client_names(error: BadRequest) -> BadRequest:
    """The same refusal of a model behind the router, with the fields named as the client sent them."""
    return BadRequest(_ENGINE_NAME.sub(lambda found: _CLIENT_NAMES[found[0]], error.reason))


def _max_tokens(fields: Fields, default: int | None) -> int:
    max_tokens = fields.integer("max_tokens")
    max_tokens = default if max_tokens is None else max_tokens
    if max_tokens is None:
        raise BadRequest("max_tokens is missing")
    if max_tokens < 1 and max_tokens != WHAT_FITS:
        raise BadRequest(f"max_tokens is {max_tokens}; it must be a single value > 0")
    return max_tokens


def _sampling(fields: Fields, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """As it came, but for what 32-bit arithmetic can't do: TensorRT-LLM's, for one, looks at few of these itself.

    top_k 1 is how all engines understand greedy.
    """
    found = {ours: fields.single(name).reshape(1, 1) for name, ours in _TO_ENGINE.items() if name in tensors}
    for name, ours in _TO_ENGINE.items():
        if ours in found and found[ours].dtype.kind == "f" and not np.isfinite(found[ours]):
            raise BadRequest(f"{name} is {found[ours].item():g}; it must be a finite number")
    for name in ("temperature", "runtime_top_p"):
        if name in found and 0 <= found[name].flat[0] < GREEDY_BELOW:
            del found[name]
            found["runtime_top_k"] = int32(1)
    if "repetition_penalty" in found and found["repetition_penalty"] > 0:
        found["repetition_penalty"] = np.clip(found["repetition_penalty"], *PENALTIES)
    return found


def _outputs(fields: Fields, requested: frozenset[str]) -> frozenset[str]:
    """As named; without names (/generate can't name any), what a reader needs and what the return_* flags ask for."""
    flagged = [name for flag, names in _FLAGGED_OUTPUTS.items() if fields.flag(flag) for name in names]
    named = requested if requested != ROUTER_CONTRACT.output_names else UNASKED_FOR
    wanted = frozenset(named).union(flagged)
    return wanted if fields.flag("return_log_probs") else wanted.difference(LOG_PROBS)
