"""TensorRT-LLM itself: imported on the right GPUs, and its LLM made of our settings."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from bls.manifest import Manifest
from bls.tokens import tokenizer_files
from engines.llmapi.settings import LlmApiParameters
from engines.worker.parameters import BadParameter

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_BUILDER = "llmapi"  # of a tier that holds a Hugging Face model
# What a launcher (mpirun, srun) above the server leaves. The library starts processes by MPI, which would take itself
# for one of the launcher's; trtllm-llmapi-launch removes these too. Without a launcher they are somebody's settings.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_OF_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "SLURM_")
_POLICIES = {True: "GUARANTEED_NO_EVICT", False: "MAX_UTILIZATION"}


def import_llmapi(gpu_ids: tuple[int, ...] | None) -> Any:
    """tensorrt_llm.llmapi. `gpu_ids` count among the GPUs that are visible; LLM has no argument for them."""
    if any(name in os.environ for name in _RANKS):
        for name in [name for name in os.environ if name.startswith(_OF_LAUNCHERS)]:
            del os.environ[name]
    if gpu_ids is not None:  # Before the import: CUDA reads it once.
        os.environ[_VISIBLE] = _visible(gpu_ids, os.environ.get(_VISIBLE, ""))
    return importlib.import_module("tensorrt_llm.llmapi")


def _visible(gpu_ids: tuple[int, ...], visible: str) -> str:
    names = visible.split(",") if visible else [str(number) for number in range(max(gpu_ids) + 1)]
    if max(gpu_ids) >= len(names):
        raise BadParameter(f"parameter gpu_device_ids names GPU {max(gpu_ids)}; {_VISIBLE} shows {len(names)}")
    return ",".join(names[number] for number in gpu_ids)


def model_of(manifest: Manifest, settings: LlmApiParameters) -> str:
    """The folder or the hub's id for LLM. Raises BadParameter for a folder that holds no such model."""
    if settings.model and not Path(settings.model).is_dir():
        return settings.model
    if not settings.model and manifest.builder != _BUILDER:
        command = f"python -m scripts.build_engines {manifest.folder.name} --for {_BUILDER}"
        raise BadParameter(
            f"{manifest.file}: it was built for {manifest.builder}: "
            f"run `{command}`, or name a Hugging Face model in the parameter model"
        )
    weights = manifest.weights_path
    folder = Path(settings.model) if settings.model else weights if weights.is_dir() else weights.parent
    if not (folder / "config.json").is_file():
        raise BadParameter(f"{folder} holds no Hugging Face model: config.json is missing")
    _check_tokenizer(folder, manifest)
    return str(folder)


def _check_tokenizer(folder: Path, manifest: Manifest) -> None:
    """The prompts come as ids of the manifest's tokenizer: for another one they would be noise."""
    built = manifest.tokenizer
    file = folder / Path(built.path).name
    if built.kind != "gguf" and file.is_file() and tokenizer_files.digest(built.kind, file) != built.sha256:
        raise BadParameter(f"{file} is not the tokenizer of {manifest.file}: build the tier of this model")


def arguments(llmapi: Any, manifest: Manifest, settings: LlmApiParameters) -> dict[str, Any]:
    """The keyword arguments of LLM."""
    cache = llmapi.KvCacheConfig(
        enable_block_reuse=settings.reuse_cache,
        free_gpu_memory_fraction=settings.cache_fraction,
        max_tokens=settings.cache_tokens,
        host_cache_size=settings.cache_host_bytes or None,
        dtype=settings.cache_dtype,
    )
    policy = llmapi.CapacitySchedulerPolicy(_POLICIES[settings.no_evict])
    # With padding a batch takes the next larger graph: half as many of them, each of up to 200 MB.
    graphs = llmapi.CudaGraphConfig(max_batch_size=settings.max_batch_size, enable_padding=True)
    return {
        "model": model_of(manifest, settings),
        # Ids come in and go out. Guided decoding alone needs the words behind them.
        "skip_tokenizer_init": settings.guided_decoding is None,
        "dtype": settings.dtype,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
        "max_batch_size": settings.max_batch_size,
        "max_num_tokens": settings.max_num_tokens,
        "max_seq_len": manifest.context_tokens,
        "kv_cache_config": cache,
        "scheduler_config": llmapi.SchedulerConfig(capacity_scheduler_policy=policy),
        "enable_chunked_prefill": settings.chunked_context,
        "cuda_graph_config": graphs if settings.cuda_graphs else None,
        "guided_decoding_backend": settings.guided_decoding,
        "sampler_type": settings.sampler_type,
        "enable_iter_perf_stats": True,  # Without it get_stats_async says nothing.
    }
