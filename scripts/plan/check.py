"""Whether the memory settings in the engines' config files fit, in whatever order the models load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from bls.contract import TEXT_CLASSIFIER
from engines.gpu_memory import placement_keys
from engines.gpu_memory.loading import DEFAULT_FRACTION, Load, Setting, loads
from engines.gpu_memory.placement import EnginePlacement
from engines.gpu_memory.plan import Case
from engines.gpu_memory.sizes import GIB, LLMAPI, TENSORRT
from scripts.server import model_folders

CLASSIFIER_INSTANCE = GIB // 2  # weights, activations, and its share of a CUDA context: an estimate
FRACTION, CAP = "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"
_LLMAPI_KEYS = {
    "model": "model",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "kv_cache_dtype": "kv_cache_dtype",
}
_BATCH = re.compile(r"^\s*max_batch_size\s*:\s*(\d{1,9})", re.MULTILINE)
_ON_GPU, _COUNT = re.compile(r"\{[^{}]*\bKIND_GPU\b[^{}]*\}"), re.compile(r"\bcount\s*:\s*(\d{1,3})")
_COMMENT = re.compile(r"#[^\n]*")
_DECIMAL = re.compile(r"\d(\.\d{1,6})?|\.\d{1,6}")
_PARAMETER = re.compile(r'key\s*:\s*"([^"]*)"\s*value\s*:?\s*\{\s*string_value\s*:\s*"([^"]*)"')


def config_file(repository: Path, model: str, runtime: str) -> Path:
    """The config that a server on GPUs takes. Raises ValueError if the model has none for the LLM API."""
    file = model_folders.config_file(repository / model, LLMAPI if runtime == LLMAPI else None)
    if runtime == LLMAPI and file.stem != LLMAPI:
        raise ValueError(f"{model} has no configs/{LLMAPI}.pbtxt")
    return file


def classifier_bytes(repository: Path) -> int:
    """Of each GPU, by the text classifier: 0 unless its config for ONNX Runtime's backend says KIND_GPU."""
    file = repository / TEXT_CLASSIFIER / "config.pbtxt"
    text = _COMMENT.sub("", file.read_text(encoding="utf-8")) if file.exists() else ""
    counts = [_COUNT.search(group) for group in _ON_GPU.findall(text)]
    return sum(int(count[1]) if count else 1 for count in counts) * CLASSIFIER_INSTANCE


def keys(repository: Path, model: str, runtime: str) -> dict[str, int | str]:
    """What the config says of PLACEMENT_KEYS: GPUs or instances; by the LLM API, which builds nothing, the sizes too.

    Raises ValueError.
    """
    text = config_file(repository, model, runtime).read_text(encoding="utf-8")
    found = _parameters(text)
    placed: dict[str, int | str] = {"gpus": found["gpu_device_ids"]} if found.get("gpu_device_ids") else {}
    if runtime == LLMAPI:  # Instances of a model share one engine.
        sizes = [f"{ours}={found[name]}" for name, ours in _LLMAPI_KEYS.items() if found.get(name)]
        return placed | placement_keys.parsed(sizes, placement_keys.SPEC_KEYS)
    return placed or {"instances": model_folders.instances(text)}


def settings(repository: Path, placement: EnginePlacement) -> Setting:
    """What the config says of the KV cache. Raises ValueError, which names the file and the parameter; also where
    Triton is to make batches that the engine can't take."""
    file = config_file(repository, placement.model, placement.runtime)
    text = file.read_text(encoding="utf-8")
    found = _parameters(text)
    fraction, cap = found.get(FRACTION, ""), found.get(CAP, "")
    place = f"{placement.model}/{file.relative_to(repository / placement.model)}"
    batch = _BATCH.search(_COMMENT.sub("", text))
    if batch and placement.runtime == TENSORRT and int(batch[1]) > placement.spec.max_batch_size:
        raise ValueError(f"{place}: max_batch_size is {batch[1]}; the engine's is {placement.spec.max_batch_size}")
    if fraction and not (_DECIMAL.fullmatch(fraction) and 0 < Fraction(fraction) <= 1):
        raise ValueError(f"{place}: {FRACTION} is {fraction!r}; it must be above 0 and at most 1")
    if cap and not (cap.isascii() and cap.isdigit()):
        raise ValueError(f"{place}: {CAP} is {cap!r}; it must be a whole number of tokens")
    return Setting(Fraction(fraction) if fraction else DEFAULT_FRACTION, int(cap) if cap else None)


def _parameters(text: str) -> dict[str, str]:
    return dict(_PARAMETER.findall(_COMMENT.sub("", text)))


def check(case: Case, given: Mapping[str, Setting]) -> dict[str, Any]:
    """Each way of loading: the tokens each cache gets, against those it needs, and how full each GPU is."""
    ways = [_way(case, load) for load in loads(case, given)]
    return {
        "check": True,
        "fits": not any(way["faults"] for way in ways),
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory} for gpu in case.gpus],
        "head_room": float(case.head_room),
        "reserved_bytes": case.reserved,
        "settings": {
            placement.model: {
                FRACTION: float(given[placement.model].fraction),
                CAP: given[placement.model].cap,
                "instances": len(placement.gpus),
                "needed_tokens": placement.needed_tokens,
            }
            for placement in case.placements
        },
        "loads": ways,
    }


def _way(case: Case, load: Load) -> dict[str, Any]:
    needed = {placement.model: placement.needed_tokens for placement in case.placements}
    faults = [
        f"{model} gets {f'{tokens:,}' if tokens else 'no'} tokens of KV cache, but needs {needed[model]:,}"
        for model, tokens in load.tokens.items()
        if tokens < needed[model]
    ]
    for number, (gpu, used) in enumerate(zip(case.gpus, load.used, strict=True)):
        if used > gpu.memory * (1 - case.head_room):
            faults.append(f"GPU {number} is {used / gpu.memory:.0%} full, more than {float(1 - case.head_room):.0%}")
    return {"order": load.order, "tokens": dict(load.tokens), "used_bytes": list(load.used), "faults": faults}
