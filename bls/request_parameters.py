"""What stands beside a request's tensors: parameters of Triton's, of the policy's, and misspelt inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from bls import template_values
from bls.contract import ROUTER_CONTRACT
from bls.errors import BadRequest

# What may stand beside the tensors. Any other key is a misspelt input: /generate turns those into parameters.
_FOR_POLICY = ("tenant", "user", "tier")
REQUEST_PRIORITY = "request_priority"  # The priority, where Triton keeps "priority" for its scheduler: gRPC and infer.
_OF_TRITON = ("id", "timeout", "priority", "sequence_id", "sequence_start", "sequence_end", "binary_data_output")
ENABLE_THINKING = "enable_thinking"  # one of chat_template_kwargs, which most who set it set alone
_FOR_TEMPLATE = (template_values.NAME, ENABLE_THINKING)
_PARAMETERS = frozenset((*_OF_TRITON, REQUEST_PRIORITY, *_FOR_POLICY, *_FOR_TEMPLATE))
MAX_NAME_CHARACTERS = 256

# Inputs by the names that other servers have for them. /generate turns those into parameters.
_CALLED_ELSEWHERE = {
    **dict.fromkeys(("max_new_tokens", "max_output_tokens", "max_completion_tokens", "max_length"), "max_tokens"),
    **dict.fromkeys(("request_output_len", "sampling_param_max_tokens", "output_len", "n_predict"), "max_tokens"),
    **dict.fromkeys(("stop", "stop_sequences", "sampling_param_stop"), "stop_words"),
    **dict.fromkeys(("prompt", "query", "QUERY", "input_text", "inputs", "input"), "text_input"),
    "streaming": "stream",
    "len_penalty": "length_penalty",
    "num_beams": "beam_width",
    "n": "num_return_sequences",
    "sampling_param_temperature": "temperature",
    "sampling_param_top_k": "top_k",
    "sampling_param_top_p": "top_p",
    "sampling_param_seed": "seed",
}


def timeout_seconds(parameters: Mapping[str, Any], timeout_us: int) -> float | None:
    """The scheduler's timeout (gRPC, infer) or the parameter of that name (/generate); in microseconds, 0 = none."""
    value = timeout_us or parameters.get("timeout", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadRequest(f"timeout is {value!r}; it must be a whole number of microseconds >= 0")
    return value / 1e6 if value else None


def name_in(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARACTERS:
        raise BadRequest(f"{name} must be a string of at most {MAX_NAME_CHARACTERS} characters")
    return value


def priority_of(parameters: Mapping[str, Any]) -> int:
    name = REQUEST_PRIORITY if REQUEST_PRIORITY in parameters else "priority"
    value = parameters.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{name} is {value!r}; it must be a whole number")
    return value


def check_parameters(parameters: Mapping[str, Any], more: Sequence[str]) -> None:
    for name in parameters:
        if name in _PARAMETERS or name in more or name.startswith("triton_"):
            continue
        if name in _CALLED_ELSEWHERE:
            raise BadRequest(f"{name} is called {_CALLED_ELSEWHERE[name]} here")
        near = difflib.get_close_matches(name, ROUTER_CONTRACT.input_names | _PARAMETERS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        shown = name if "".join(name.split()) == name != "" else repr(name)
        raise BadRequest(f"{shown} is not an input or parameter of llm_router{hint}")


def template_values_of(parameters: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    """What the request tells the chat template beside its messages; `allowed` are the names that the policy lets it."""
    given = parameters.get(template_values.NAME, "{}")
    if not isinstance(given, str):
        raise BadRequest(f"{template_values.NAME} must be a JSON object as text")
    values = template_values.read(given)
    if ENABLE_THINKING in parameters:
        if not isinstance(parameters[ENABLE_THINKING], bool):
            raise BadRequest(f"{ENABLE_THINKING} is {parameters[ENABLE_THINKING]!r}; it must be true or false")
        values[ENABLE_THINKING] = parameters[ENABLE_THINKING]
    for name in values:
        if name not in allowed:
            can = ", ".join(allowed) or "none"
            raise BadRequest(
                f"{template_values.NAME} may not set {name[:40]}; TEMPLATE_VALUES of the policy allows {can}"
            )
    return values
