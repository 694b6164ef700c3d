"""The engine's settings out of config.pbtxt, under TensorRT-LLM's names. A wrong one stops the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_IN_FLIGHT = {"inflight_fused_batching": True, "inflight_batching": True, "V1": False, "v1": False}
_NO_EVICT = {"guaranteed_no_evict": True, "max_utilization": False}
_TRUE = ("true", "True", "TRUE", "1")
_BOOLS = {text: text in _TRUE for text in (*_TRUE, "false", "False", "FALSE", "0")}


class BadParameter(ValueError):
    """A parameter of config.pbtxt that is unknown or has an illegal value; the message names both and what is legal."""


@dataclass(frozen=True)
class EngineParameters:
    """None means: by the engine's own rule; a queue of 0 has no limit, as in TensorRT-LLM.

    `stream_interval` is in tokens and excludes `stream_min_interval_ms`. Of the last seconds 0 means for ever.
    """

    in_flight: bool
    no_evict: bool = True
    max_batch_size: int = 32
    max_queue_size: int = 0
    max_num_tokens: int = 256
    cache_tokens: int | None = None
    reuse_cache: bool = True
    chunked_context: bool = True
    exclude_input: bool = True
    stream_interval: int | None = None
    stream_min_interval_ms: float = 100.0
    cancellation_check_period_ms: float = 100.0
    stats_check_period_ms: float = 100.0
    frozen_worker_seconds: float = 10.0
    longest_step_seconds: float = 120.0
    max_grammar_cpu_ms: float = 20_000.0
    inference_num_threads: int | None = None


# Parameters that articles print and no engine has -> where what they mean is set.
ELSEWHERE = {
    "batching_strategy": "NVIDIA's templates fill gpt_model_type with it: set that",
    "decoupled_mode": "set model_transaction_policy { decoupled: true }, outside of parameters",
    "decoupled": "set model_transaction_policy { decoupled: true }, outside of parameters",
    "max_queue_delay_microseconds": "set it in dynamic_batching { }, outside of parameters",
    "preferred_batch_size": "set it in dynamic_batching { }, outside of parameters",
    "preserve_ordering": "set it in dynamic_batching { }, outside of parameters",
    "gpu_memory_utilization": "that is vLLM's; set max_tokens_in_paged_kv_cache or, on GPUs, "
    "kv_cache_free_gpu_mem_fraction",
    "eviction_policy": "there is no choice: the blocks that were unused for longest go first",
    "priority": "set priority_levels in dynamic_batching { } of llm_router; 1 is the highest",
    "stream": "it is an input of each request",
    "cuda_graph": "the engine's parameter is cuda_graph_mode",
}


def choice(values: Mapping[str, Any]) -> Callable[[str], Any]:
    """Reads one of the texts that are named."""

    def read(text: str) -> Any:
        if text not in values:
            raise ValueError(f"legal: {', '.join(values)}")
        return values[text]

    return read


def number(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], Any]:
    """Reads a number from `least` to `most`."""

    def read(text: str) -> Any:
        legal = f"legal: {'a whole number' if kind is int else 'a number'} from {least:g} to {most:g}"
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(legal) from None
        if not least <= value <= most:
            raise ValueError(legal)
        return value

    return read


BOOLEAN = choice(_BOOLS)
Readers = Mapping[str, tuple[str, Callable[[str], Any]]]
Parameters = TypeVar("Parameters", bound=EngineParameters)

# TensorRT-LLM's name -> our field and its reader.
COMMON_READERS: Readers = {
    "gpt_model_type": ("in_flight", choice(_IN_FLIGHT)),
    "batch_scheduler_policy": ("no_evict", choice(_NO_EVICT)),
    "max_batch_size": ("max_batch_size", number(int, 1, 4096)),
    "max_queue_size": ("max_queue_size", number(int, 0, 1 << 20)),
    "max_num_tokens": ("max_num_tokens", number(int, 1, 1 << 20)),
    "max_tokens_in_paged_kv_cache": ("cache_tokens", number(int, 1, 1 << 31)),
    "enable_kv_cache_reuse": ("reuse_cache", BOOLEAN),
    "enable_chunked_context": ("chunked_context", BOOLEAN),
    "exclude_input_in_output": ("exclude_input", BOOLEAN),
    "stream_interval": ("stream_interval", number(int, 1, 1024)),
    "stream_min_interval_ms": ("stream_min_interval_ms", number(float, 0, 100)),
    "cancellation_check_period_ms": ("cancellation_check_period_ms", number(float, 10, 1000)),
    "stats_check_period_ms": ("stats_check_period_ms", number(float, 10, 60_000)),
    "frozen_worker_seconds": ("frozen_worker_seconds", number(float, 0, 3600)),
    "longest_step_seconds": ("longest_step_seconds", number(float, 0, 3600)),
    "max_grammar_cpu_ms": ("max_grammar_cpu_ms", number(float, 10, 60_000)),
}
_OPENVINO_READERS: Readers = {
    **COMMON_READERS,
    "inference_num_threads": ("inference_num_threads", number(int, 1, 1024)),
}


def read(parameters: Mapping[str, str]) -> EngineParameters:
    """The settings of an engine on a CPU. Raises BadParameter."""
    return read_as(EngineParameters, _OPENVINO_READERS, parameters)


def read_as(kind: type[Parameters], readers: Readers, parameters: Mapping[str, str]) -> Parameters:
    """The settings of one kind of engine, whose parameters are those of `readers`. Raises BadParameter."""
    values: dict[str, Any] = {}
    for key, text in parameters.items():
        if key not in readers:
            hint = f"{ELSEWHERE[key]}; " if key in ELSEWHERE else ""
            raise BadParameter(f"parameter {key} is unknown; {hint}known: {', '.join(readers)}")
        field, reader = readers[key]
        try:
            values[field] = reader(text)
        except ValueError as error:
            raise BadParameter(f"parameter {key} is {text!r}; {error}") from None
    if "in_flight" not in values:
        raise BadParameter(f"parameter gpt_model_type is missing; legal: {', '.join(_IN_FLIGHT)}")
    if {"stream_interval", "stream_min_interval_ms"} <= values.keys():
        raise BadParameter("parameters stream_interval and stream_min_interval_ms exclude each other: set one")
    settings = kind(**values)
    if not settings.chunked_context and settings.max_batch_size > settings.max_num_tokens:
        raise BadParameter(
            f"parameter max_num_tokens is {settings.max_num_tokens}; without enable_chunked_context it must be "
            f"at least max_batch_size ({settings.max_batch_size})"
        )
    return settings
