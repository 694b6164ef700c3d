"""Whether the programs have written what they ought to, and whether there's room for it.

A program that ends well but leaves half of its files would only show when a server loads the engine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.builders.sources import BadSource
from engines.tensorrt_llm.spec import GpuSpec

# Of the model's 16-bit weights; int4 with its scales and with what stays in 16 bits (embeddings, lm_head).
_SHARE = {"none": 1.0, "fp8": 0.6, "int8_weight_only": 0.6, "int4_weight_only": 0.4}
_SHARE |= {"int8_sq": 0.6, "int4_awq": 0.4, "w4a8_awq": 0.4, "nvfp4": 0.45}
_GIB = 2**30


def check_disk(spec: GpuSpec, model: Path, work: Path) -> None:
    """Raises BadSource if there's no room in `work` for a checkpoint and an engine of the folder `model`."""
    weights = [file for pattern in ("*.safetensors", "*.bin") for file in model.glob(pattern)]
    needed = 2 * _SHARE[spec.quantisation] * sum(file.stat().st_size for file in weights)
    free = shutil.disk_usage(work).free
    if free < needed:
        room = f"the checkpoint and the engine need about {needed / _GIB:.1f} GiB"
        raise BadSource(f"{room}, but {free / _GIB:.1f} GiB are free in {work.parent}")


def check_checkpoint(folder: Path, spec: GpuSpec) -> None:
    """Raises BadSource."""
    _check_ranks(folder, [f"rank{rank}.safetensors" for rank in range(spec.world_size)])
    _check_mapping(folder, _read(folder).get("mapping"), spec)


def check_engine(folder: Path, spec: GpuSpec) -> None:
    """Also that it was built for the sizes of `spec`. Raises BadSource."""
    _check_ranks(folder, [f"rank{rank}.engine" for rank in range(spec.world_size)])
    config = _read(folder)
    try:
        sizes, mapping = config["build_config"], config["pretrained_config"]["mapping"]
    except (KeyError, TypeError):
        raise BadSource(f"{folder / 'config.json'} does not belong to an engine") from None
    _check_mapping(folder, mapping, spec)
    for name in ("max_batch_size", "max_seq_len", "max_num_tokens"):
        if sizes.get(name) != getattr(spec, name):
            raise BadSource(f"{folder}: the engine's {name} is {sizes.get(name)}; specs.toml has {getattr(spec, name)}")


def check_model(folder: Path, model: str, config: Mapping[str, Any]) -> None:
    """Whether the engine in `folder` may be one of `model`, whose config.json holds `config`. Raises BadSource."""
    built = _read(folder)["pretrained_config"]
    for name in ("num_hidden_layers", "hidden_size"):
        if name in built and name in config and built[name] != config[name]:
            differs = f"the engine's {name} is {built[name]}; that of {model} is {config[name]}"
            raise BadSource(f"{folder}: {differs}: it was built from another model")


def _check_ranks(folder: Path, names: list[str]) -> None:
    missing = [name for name in ("config.json", *names) if not (folder / name).is_file()]
    if missing:
        raise BadSource(f"{folder} has no {missing[0]}")


def _check_mapping(folder: Path, mapping: Any, spec: GpuSpec) -> None:
    for name in ("tp_size", "pp_size"):
        found = mapping.get(name) if isinstance(mapping, dict) else None
        if found != getattr(spec, name):
            raise BadSource(f"{folder}: its {name} is {found}; specs.toml has {getattr(spec, name)}")


def _read(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSource(f"{folder / 'config.json'}: {error}") from None
    if not isinstance(config, dict):
        raise BadSource(f"{folder / 'config.json'}: it must hold an object")
    return config
