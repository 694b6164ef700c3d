"""The parameters of configs/llmapi.pbtxt, under the names of TensorRT-LLM's C++ backend, or else of its LLM API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.worker.parameters import (
    BOOLEAN,
    COMMON_READERS,
    BadParameter,
    EngineParameters,
    Readers,
    choice,
    number,
    read_as,
)

TRTLLM_SAMPLER, TORCH_SAMPLER = "TRTLLMSampler", "TorchSampler"
_SAMPLERS = {name: name for name in (TRTLLM_SAMPLER, TORCH_SAMPLER)}
_DTYPES = {name: name for name in ("auto", "float16", "bfloat16", "float32")}
_CACHE_DTYPES = {name: name for name in ("auto", "fp8")}
_GRAMMARS = {name: name for name in ("xgrammar", "llguidance")}


@dataclass(frozen=True)
class LlmApiParameters(EngineParameters):
    """`model` is a folder or an id of the Hugging Face hub; "" means what is built. GPUs None: as many as are visible.

    `sampler_type` TorchSampler, TensorRT-LLM 1.1's default, ignores penalties and seeds; penalties are refused then.
    """

    model: str = ""
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    gpu_device_ids: tuple[int, ...] | None = None
    cache_fraction: float = 0.9
    cache_dtype: str = "auto"
    cache_host_bytes: int = 0
    guided_decoding: str | None = None
    cuda_graphs: bool = True
    sampler_type: str = TRTLLM_SAMPLER

    @property
    def world_size(self) -> int:
        """GPUs that one copy of the model is spread over."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


def _gpu_ids(text: str) -> tuple[int, ...]:
    ids = text.split(",")
    if not all(each.strip().isdecimal() for each in ids) or len({int(each) for each in ids}) < len(ids):
        raise ValueError("legal: different GPU numbers separated by commas, such as 0 or 0,1")
    return tuple(int(each) for each in ids)


def _model(text: str) -> str:
    return text.removeprefix("hf:")


READERS: Readers = {
    **COMMON_READERS,
    "model": ("model", _model),
    "dtype": ("dtype", choice(_DTYPES)),
    "tensor_parallel_size": ("tensor_parallel_size", number(int, 1, 64)),
    "pipeline_parallel_size": ("pipeline_parallel_size", number(int, 1, 64)),
    "gpu_device_ids": ("gpu_device_ids", _gpu_ids),
    "kv_cache_free_gpu_mem_fraction": ("cache_fraction", number(float, 0.01, 1)),
    "kv_cache_dtype": ("cache_dtype", choice(_CACHE_DTYPES)),
    "kv_cache_host_memory_bytes": ("cache_host_bytes", number(int, 0, 1 << 42)),
    "guided_decoding_backend": ("guided_decoding", choice(_GRAMMARS)),
    "cuda_graph_mode": ("cuda_graphs", BOOLEAN),
    "sampler_type": ("sampler_type", choice(_SAMPLERS)),
}


def read(parameters: Mapping[str, str]) -> LlmApiParameters:
    """Raises BadParameter."""
    settings = read_as(LlmApiParameters, READERS, parameters)
    if settings.gpu_device_ids is not None and len(settings.gpu_device_ids) != settings.world_size:
        raise BadParameter(
            f"parameter gpu_device_ids names {len(settings.gpu_device_ids)} GPUs; tensor_parallel_size "
            f"{settings.tensor_parallel_size} x pipeline_parallel_size {settings.pipeline_parallel_size} needs "
            f"{settings.world_size}"
        )
    return settings
