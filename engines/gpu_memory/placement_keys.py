"""Makes an EnginePlacement of a tier's spec and what the person says beside it, and of one another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from engines.gpu_memory.placement import BadPlacement, EnginePlacement
from engines.gpu_memory.shape import Shape
from engines.tensorrt_llm.spec import GpuSpec

Keys = Mapping[str, int | str]

INPUT_TOKENS, OUTPUT_TOKENS = 1024, 256  # of a request where nobody says otherwise: a chat with a few turns before it
SPEC_KEYS = tuple(
    field.name
    for field in fields(GpuSpec)
    if field.name not in ("workers", "calib_dataset", "calib_size", "quantise_lm_head")
)
PLACEMENT_KEYS = ("input", "output", "concurrent", "instances", "gpus")
MAX_INSTANCES = 64
_TEXT_KEYS = ("model", "precision", "quantisation", "kv_cache_dtype", "gpus")


def parsed(texts: list[str], keys: Sequence[str]) -> dict[str, int | str]:
    """KEY=VALUE each, with one of `keys`. Raises BadPlacement."""
    found: dict[str, int | str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in keys:
            raise BadPlacement(f"{text!r} must be KEY=VALUE; keys: {', '.join(keys)}")
        if key in _TEXT_KEYS:
            found[key] = value
        elif value.isascii() and value.isdigit() and 0 < int(value) < 10**9:
            found[key] = int(value)
        else:
            raise BadPlacement(f"{key} is {value!r}; it must be a whole number above 0")
    return found


def spec_of(given: Keys, spec: GpuSpec | None) -> GpuSpec:
    """`spec` with the keys of it that are given; max_input_len is forgotten where a new max_seq_len leaves it no room.

    Raises BadGpuSpec, as specs.toml does; BadPlacement if there is no model.
    """
    own = {key: value for key, value in given.items() if key in SPEC_KEYS}
    if spec is None:
        if "model" not in own:
            raise BadPlacement(
                "it has no sub-table tensorrt_llm in the specs: give model=..., or none to leave the tier out"
            )
        return GpuSpec.of(own)
    known = {field.name: getattr(spec, field.name) for field in fields(spec)} | own
    if spec.max_input_len and "max_input_len" not in own and spec.max_input_len >= known["max_seq_len"]:
        known["max_input_len"] = None
    return GpuSpec(**known)


def placement(
    model: str, engine: str, spec: GpuSpec, checkpoint: tuple[Shape, str], runtime: str, gpus: int, given: Keys
) -> EnginePlacement:
    """`checkpoint` is as `known.model` gives it, `gpus` how many there are; `given` may hold PLACEMENT_KEYS.

    Raises BadPlacement.
    """
    shape, saved = checkpoint
    if saved != "none" and spec.quantisation != "none":
        raise BadPlacement(f"quantisation is {spec.quantisation}; the model was saved in {saved} already")
    input_tokens = int(given.get("input", min(INPUT_TOKENS, spec.longest_input, max(1, spec.max_seq_len * 4 // 5))))
    output_tokens = int(given.get("output", max(1, min(OUTPUT_TOKENS, spec.max_seq_len - input_tokens))))
    return EnginePlacement(
        model=model,
        engine=engine,
        shape=shape,
        spec=spec,
        quantisation=spec.quantisation if saved == "none" else saved,
        runtime=runtime,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrent=int(given.get("concurrent", spec.max_batch_size)),
        gpus=_placed(given, spec.world_size, gpus),
    )


def changed(old: EnginePlacement, given: Keys, gpus: int) -> EnginePlacement:
    """`old` with other keys, its GPUs given out anew where it takes more or fewer. Raises BadPlacement, BadGpuSpec."""
    spec = spec_of(given, old.spec)
    instances = int(given.get("instances", len(old.gpus)))
    moved = "gpus" in given or spec.world_size != old.spec.world_size or instances != len(old.gpus)
    places = given if "gpus" in given else {"instances": instances}
    return replace(
        old,
        spec=spec,
        quantisation=str(given.get("quantisation", old.quantisation)),
        concurrent=int(given.get("concurrent", old.concurrent)),
        gpus=_placed(places, spec.world_size, gpus) if moved else old.gpus,
    )


def _placed(given: Keys, world_size: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """`gpus` as gpu_device_ids in config.pbtxt: commas inside an instance, semicolons between them."""
    instances, text = int(given.get("instances", 0)), given.get("gpus")
    if instances > MAX_INSTANCES:
        raise BadPlacement(f"instances is {instances}; at most {MAX_INSTANCES}")
    if text is None:
        return _in_turn(world_size, instances or 1, gpus)
    if not re.fullmatch(r"\d{1,3}([,;]\d{1,3})*", str(text)):
        raise BadPlacement(f"gpus is {text!r}; give numbers such as 0,1;2,3: two instances on two GPUs each")
    placed = tuple(tuple(int(gpu) for gpu in instance.split(",")) for instance in str(text).split(";"))
    if instances and instances != len(placed):
        raise BadPlacement(f"instances is {instances}; gpus names {len(placed)}")
    return placed


def _in_turn(world_size: int, instances: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """The first instance takes the first GPUs, the next one those after them, and so on around."""
    if world_size > gpus:
        raise BadPlacement(f"tp_size x pp_size is {world_size}; there are {gpus} GPUs: give --gpu {world_size}xNAME")
    starts = range(0, instances * world_size, world_size)
    return tuple(tuple((start + rank) % gpus for rank in range(world_size)) for start in starts)
