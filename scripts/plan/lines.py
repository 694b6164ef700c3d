"""What a plan says in the words of the files that it is for: config.pbtxt's parameters, specs.toml's keys."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from engines.gpu_memory.plan import EnginePlan, Plan
from engines.gpu_memory.sizes import LLMAPI
from engines.tensorrt_llm.spec import GpuSpec
from scripts.plan.check import CAP, FRACTION

_BUILT_FOR_LLMAPI = ("model", "max_seq_len")  # The rest of the spec is in configs/llmapi.pbtxt.


def of_config(plan: Plan, engine: EnginePlan) -> list[str]:
    """The lines of the model's config file."""
    instances = engine.placement.gpus
    spec = engine.placement.spec
    values = {FRACTION: f"{float(engine.fraction):.2f}", CAP: str(engine.kv_tokens)}
    if engine.placement.runtime == LLMAPI:  # What a built engine has in it.
        values |= {"max_batch_size": str(spec.max_batch_size), "max_num_tokens": str(spec.max_num_tokens)}
        values |= {"tensor_parallel_size": str(spec.tp_size), "pipeline_parallel_size": str(spec.pp_size)}
        values |= {"kv_cache_dtype": spec.kv_cache_dtype}
    if len(plan.case.gpus) > 1:
        values["gpu_device_ids"] = ";".join(",".join(map(str, gpus)) for gpus in instances)
    lines = [f"instance_group [ {{ count: {len(instances)} kind: KIND_CPU }} ]"] if len(instances) > 1 else []
    return lines + [f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}' for key, text in values.items()]


def of_specs(planned: GpuSpec, known: GpuSpec | None, runtime: str) -> list[str]:
    """The keys of `planned` that specs.toml, which has `known`, doesn't say yet: the engine has to be built of them."""
    names = [field.name for field in fields(GpuSpec) if runtime != LLMAPI or field.name in _BUILT_FOR_LLMAPI]
    values = {name: getattr(planned, name) for name in names}
    if known is not None:
        values = {name: value for name, value in values.items() if value != getattr(known, name)}
    else:
        values = {name: value for name, value in values.items() if value is not None}
    return [_line(name, value) for name, value in values.items()]


def _line(name: str, value: int | str | None) -> str:
    if value is None:
        return f"# without {name}"
    if name == "model" and not str(value).startswith("hf:") and not Path(str(value)).expanduser().exists():
        return f'model = "hf:OWNER/REPOSITORY"  # {value}'
    return f"{name} = {json.dumps(value)}"
