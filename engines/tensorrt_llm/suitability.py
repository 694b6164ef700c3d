"""Whether a spec suits a model and a GPU, whatever their memory: asked by the planner and before a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.tensorrt_llm.spec import AWQ, GpuSpec

AWQ_BLOCK_SIZE = 128  # weights that share one scale
# Kinds of rope_scaling whose factor doesn't lengthen max_position_embeddings, as in TensorRT-LLM's builder.py.
_ROPE_WITHIN = ("su", "longrope", "llama3")
_MAX_ROPE_FACTOR = 1000

Capability = tuple[int, int]  # NVIDIA's compute capability: (8, 9) is Ada
_FP8_FROM: Capability = (8, 9)
_FP4_FROM: Capability = (10, 0)
_IN_FP8 = ("fp8", "w4a8_awq")  # w4a8: 4-bit weights, 8-bit activations
# tensorrt_llm/builder.py refuses whole-number weights on data-centre Blackwell.
_NO_INTEGERS: tuple[Capability, Capability] = ((10, 0), (12, 0))


@dataclass(frozen=True)
class Dimensions:
    """What a spec has to suit in a model. `context` is in tokens, None where nobody knows it; `widths` are those that
    AWQ cuts into blocks, by their keys in config.json."""

    layers: int
    heads: int
    kv_heads: int
    context: int | None
    widths: Mapping[str, int]


def unsuited(spec: GpuSpec, model: Dimensions) -> str | None:
    """What `spec` asks for that `model` can't do: one line with the key and its limit; None if it suits."""
    tp = spec.tp_size
    if model.context is not None and spec.max_seq_len > model.context:
        return f"max_seq_len is {spec.max_seq_len}; the model's context is {model.context} tokens"
    if not _divides(tp, model):
        legal = ", ".join(str(size) for size in range(1, model.heads + 1) if _divides(size, model))
        heads = f"{model.heads} attention heads and {model.kv_heads} key-value heads"
        return f"tp_size is {tp}; the model's {heads} can be divided among {legal} GPUs"
    if spec.pp_size > model.layers:
        return f"pp_size is {spec.pp_size}; the model has {model.layers} layers"
    if spec.quantisation in AWQ:
        for name, size in model.widths.items():
            if size % (tp * AWQ_BLOCK_SIZE):
                blocks = f"{name} ({size}) can't be split into blocks of {AWQ_BLOCK_SIZE} on {tp} GPUs"
                return f'quantisation is "{spec.quantisation}"; the model\'s {blocks}'
    return None


def _divides(tp: int, model: Dimensions) -> bool:
    return not model.heads % tp and not (model.kv_heads % tp and tp % model.kv_heads)


def context_tokens(positions: int, rope_scaling: Any) -> int:
    """The context of a model whose config.json has max_position_embeddings and rope_scaling so. Raises ValueError."""
    rope = rope_scaling or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"rope_scaling is {rope!r}; it must be an object")
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor") or 1
    if not isinstance(factor, int | float) or not 1 <= factor <= _MAX_ROPE_FACTOR:
        raise ValueError(f"factor of rope_scaling is {factor!r}; it must be a number from 1 to {_MAX_ROPE_FACTOR}")
    return positions if kind in _ROPE_WITHIN else int(positions * factor)


def lacks(capability: Capability, quantisation: str) -> str | None:
    """What a GPU lacks to compute weights in a quantisation, for a message; None if nothing."""
    if quantisation in _IN_FP8 and not has_fp8(capability):
        return "has no FP8, which Ada, Hopper and later GPUs have"
    if quantisation == "nvfp4" and capability < _FP4_FROM:
        return "has no FP4, which Blackwell and later GPUs have"
    if quantisation.startswith(("int", "w4a8")) and not has_integer_weights(capability):
        return "is not offered it by TensorRT-LLM: use fp8"
    return None


def has_fp8(capability: Capability) -> bool:
    """Whether a GPU computes in FP8."""
    return capability >= _FP8_FROM


def has_integer_weights(capability: Capability) -> bool:
    """Whether an engine for a GPU may have int8 or int4 weights."""
    first, end = _NO_INTEGERS
    return not first <= capability < end
