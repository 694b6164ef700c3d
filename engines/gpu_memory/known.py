"""Models and GPUs by name, and what config.json says of a model that isn't known by name."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from engines.gpu_memory import gpu_names
from engines.gpu_memory.placement import Gpu
from engines.gpu_memory.shape import BadModel, Shape, read
from engines.gpu_memory.sizes import GIB, WEIGHT_BITS
from engines.specs import tomllib

MODELS = Path(__file__).parent / "models.toml"
# How a model of the hub is quantised that is named so.
_SAVED = {"-awq": "int4_awq", "-gptq-int4": "int4_gptq", "-fp8": "fp8"}
_WORDS = re.compile(r"-(instruct|chat|it|base|hf)(?=-|$)|^meta-")

# GiB as CUDA reports them ("GPU 0 has a total capacity of ..."), rounded down, and the compute capability.
# Workstation cards (RTX) with ECC switched on have some 6 % less. Of those below 21 GiB, and of A30, L40, A800, H800
# and GH200, no report was at hand: they are some 3 % below the size on the box, as the others are.
GPUS = {
    "RTX-3070": (7.6, (8, 6)),
    "RTX-4060": (7.6, (8, 9)),
    "RTX-3080": (9.6, (8, 6)),
    "RTX-3060": (11.6, (8, 6)),
    "RTX-3080-Ti": (11.6, (8, 6)),
    "RTX-4070": (11.6, (8, 9)),
    "RTX-4070-SUPER": (11.6, (8, 9)),
    "RTX-4070-Ti": (11.6, (8, 9)),
    "RTX-5070": (11.6, (12, 0)),
    "A2": (14.5, (8, 6)),
    "A16": (14.5, (8, 6)),
    "RTX-4060-Ti-16GB": (15.5, (8, 9)),
    "RTX-4070-Ti-SUPER": (15.5, (8, 9)),
    "RTX-4080": (15.5, (8, 9)),
    "RTX-4080-SUPER": (15.5, (8, 9)),
    "RTX-5070-Ti": (15.4, (12, 0)),
    "RTX-5080": (15.4, (12, 0)),
    "RTX-A4000": (15.5, (8, 6)),
    "RTX-4000-Ada": (19.4, (8, 9)),
    "RTX-A4500": (19.4, (8, 6)),
    "A10": (21.9, (8, 6)),
    "A10G": (21.9, (8, 6)),
    "L4": (22.0, (8, 9)),
    "A30": (23.4, (8, 0)),
    "RTX-3090": (23.5, (8, 6)),
    "RTX-3090-Ti": (23.5, (8, 6)),
    "RTX-A5000": (23.5, (8, 6)),
    "RTX-4090": (23.5, (8, 9)),
    "RTX-5000-Ada": (31.3, (8, 9)),
    "RTX-5090": (31.3, (12, 0)),
    "A100-40GB": (39.3, (8, 0)),
    "A40": (44.3, (8, 6)),
    "L40": (44.3, (8, 9)),
    "L40S": (44.3, (8, 9)),
    "L20": (44.3, (8, 9)),
    "RTX-A6000": (47.4, (8, 6)),
    "RTX-6000-Ada": (47.4, (8, 9)),
    "A100-80GB": (79.1, (8, 0)),
    "A800-80GB": (79.1, (8, 0)),
    "H100-80GB": (79.1, (9, 0)),
    "H800-80GB": (79.1, (9, 0)),
    "H100-NVL": (93.0, (9, 0)),
    "GH200": (94.5, (9, 0)),
    "RTX-PRO-6000": (94.9, (12, 0)),
    "H20": (95.0, (9, 0)),
    "H200": (139.8, (9, 0)),
    "B200": (178.3, (10, 0)),
}
COMMON = ("A10", "L4", "RTX-4090", "A100-80GB", "L40S", "H100-80GB", "H200")
# Cards that people have, and that TensorRT-LLM 1.x has no kernels for: it begins with Ampere.
TOO_OLD = {"T4": "7.5", "RTX-2080-Ti": "7.5", "Quadro-RTX-6000": "7.5", "Quadro-RTX-8000": "7.5", "V100": "7.0"}


def gpu(name: str) -> Gpu:
    """By a name of GPUS, as nvidia-smi and clouds write it or not, a slice of one (MIG), or a number of GiB.

    Raises BadModel.
    """
    if re.fullmatch(r"\d{1,3}(\.\d+)?", name) and float(name) >= 1:
        return Gpu(name, int(float(name) * GIB))
    if part := gpu_names.slice_of(name):
        card, gib = part
        wanted = gpu_names.plain(card)
        return Gpu(name, int(gib * GIB), gpu((_sizes(wanted) or [card])[0]).capability if wanted else (8, 0))
    wanted = gpu_names.plain(name)
    if "laptop" in wanted:
        raise BadModel(f"{name}: a laptop's card may have less memory than one of its name; give the GiB it has")
    for known, (gib, capability) in GPUS.items():
        if wanted.lower() in (known.lower(), f"{known}-{_box(gib)}gb".lower()):
            return Gpu(known, int(gib * GIB), capability)
    for old, old_capability in TOO_OLD.items():
        if wanted.startswith(gpu_names.plain(old).lower()):
            raise BadModel(
                f"{name} has compute capability {old_capability}; there is no TensorRT-LLM 1.x for it, which needs 8.0 "
                "(Ampere) or newer; the text classifier runs there"
            )
    sizes = _sizes(wanted)
    if len(sizes) == 1:
        return gpu(sizes[0])
    if sizes:
        raise BadModel(f"GPU {name!r} comes in more than one size: {' or '.join(sizes)}")
    near = get_close_matches(wanted, [known.lower() for known in GPUS], 3, 0.6)
    hint = f"; near: {', '.join(known for known in GPUS if known.lower() in near)}" if near else ""
    raise BadModel(f"GPU {name!r} isn't known{hint}; known: {', '.join(GPUS)}, or its memory in GiB, such as 79.1")


def _sizes(wanted: str) -> list[str]:
    """The cards of this name that differ in their memory."""
    return [known for known in GPUS if known.lower().startswith(f"{wanted.lower()}-") and known[-2:] == "GB"]


def _box(gib: float) -> int:
    """The GB that stand on the box of a card of so many GiB."""
    return next(size for size in (8, 10, 12, 16, 20, 24, 32, 40, 48, 80, 94, 96, 141, 192) if size > gib)


def model(source: str) -> tuple[Shape, str]:
    """The shape of `source`, and how its weights are quantised already ("none" if they aren't).

    `source` is a folder with a config.json, such a file, or a name of models.toml, as specs.toml writes it
    ("hf:owner/repo") or bare, with an ending of a quantised model or without. Raises BadModel.
    """
    path = Path(source).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if not source.startswith("hf:") and file.is_file():
        return _read(str(file), _json(file), file.parent)
    if source.startswith(("/", ".", "~")):
        raise BadModel(f"{source} is neither a folder with a config.json nor a config.json itself")
    known = _known()
    wanted = _plain(source.removeprefix("hf:"))
    ending = next((ending for ending in _SAVED if wanted.endswith(ending)), "")
    for name, config in known.items():
        if name.lower() == wanted.removesuffix(ending):
            shape, saved = _read(name, config, None)
            return shape, _SAVED.get(ending, saved)
    near = get_close_matches(wanted, [name.lower() for name in known], 3, 0.5)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise BadModel(f"model {source!r} isn't known by name{hint}; give a folder with its config.json")


@cache
def _known() -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = tomllib.loads(MODELS.read_text(encoding="utf-8"))
    return known


def _plain(name: str) -> str:
    return _WORDS.sub("", name.rsplit("/", 1)[-1].lower())


def _read(place: str, config: dict[str, Any], folder: Path | None) -> tuple[Shape, str]:
    try:
        return read(config), _quantisation(config, folder)
    except BadModel as error:
        raise BadModel(f"{place}: {error}") from None


def _json(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadModel(f"{file}: {error}") from None
    if not isinstance(config, dict):
        raise BadModel(f"{file}: it must hold one object")
    return config


def _quantisation(config: dict[str, Any], folder: Path | None) -> str:
    """Of a checkpoint that was saved quantised: quantization_config, or ModelOpt's hf_quant_config.json beside it."""
    modelopt = folder / "hf_quant_config.json" if folder is not None else None
    if config.get("quantization_config") is not None:
        found = _object(config["quantization_config"], "quantization_config")
        method = found.get("quant_method")
        name = "fp8" if method == "fp8" else f"int{found.get('bits')}_{method}"
    elif modelopt is not None and modelopt.is_file():
        method = _object(_json(modelopt).get("quantization"), "quantization").get("quant_algo")
        name = {"W4A16_AWQ": "int4_awq"}.get(str(method), str(method).lower())
    else:
        return "none"
    if name not in WEIGHT_BITS:
        raise BadModel(f"the weights are quantised as {name}, which isn't known here; known: {', '.join(WEIGHT_BITS)}")
    return name


def _object(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadModel(f"{key} is {value!r}; it must be an object")
    return value
