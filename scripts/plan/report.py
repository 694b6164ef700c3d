"""A plan as one dictionary, which is the JSON, and as tables made of that same dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engines.gpu_memory.advice import changes, more_gpus, smallest_gpu
from engines.gpu_memory.known import GPUS
from engines.gpu_memory.loading import Setting, loads
from engines.gpu_memory.placement import EnginePlacement
from engines.gpu_memory.plan import Case, DoesNotFit, EnginePlan, Plan
from engines.gpu_memory.sizes import GIB, LLMAPI
from engines.tensorrt_llm.spec import TOKENS_PER_BLOCK, GpuSpec
from scripts.plan import lines as plan_lines
from scripts.plan.check import CAP, FRACTION

Report = dict[str, Any]
SIXTEEN_BITS = "16 bits"
_SAVED_SO = (
    "The LLM API does not quantise: name a model that was saved quantised, with quantisation none in specs.toml."
)
WIDTH = 40  # columns that a GPU's memory is drawn in


def of_plan(plan: Plan, specs: Mapping[str, GpuSpec | None]) -> Report:
    """All numbers of bytes are a rank's, which is one GPU of one instance. `specs` are those of specs.toml, by tier."""
    models = [_model(each.placement, each.kv_bytes) | _settings(plan, each, specs) for each in plan.engines]
    return _frame(plan.case) | {"fits": True, "models": models}


def of_shortage(case: Case, shortage: DoesNotFit) -> Report:
    """KV caches are as large as they have to be here."""
    models = [
        _model(placement, placement.needed_tokens * placement.kv_bytes_per_token) for placement in case.placements
    ]
    return _frame(case) | {
        "fits": False,
        "models": models,
        "gpu": shortage.gpu,
        "needs_bytes": shortage.needs,
        "has_bytes": shortage.has,
        "short_bytes": shortage.short,
        "would_fit": changes(case),
        "smallest_gpu": smallest_gpu(case),
        "more_gpus": more_gpus(case),
    }


def _frame(case: Case) -> Report:
    return {
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory} for gpu in case.gpus],
        "head_room": float(case.head_room),
        "reserved_bytes": case.reserved,
    }


def _model(placement: EnginePlacement, kv_bytes: int) -> Report:
    spec = placement.spec
    return {
        "model": placement.model,
        "runtime": placement.runtime,
        "source": spec.model,
        "parameters": placement.shape.parameters,
        "notes": list(placement.shape.notes),
        "weights": placement.quantisation if placement.quantisation != "none" else SIXTEEN_BITS,
        "kv_cache_dtype": spec.kv_cache_dtype if spec.kv_cache_dtype != "auto" else SIXTEEN_BITS,
        "tp_size": spec.tp_size,
        "pp_size": spec.pp_size,
        "gpus": [list(instance) for instance in placement.gpus],
        "max_batch_size": spec.max_batch_size,
        "max_num_tokens": spec.max_num_tokens,
        "max_seq_len": spec.max_seq_len,
        "input_tokens": placement.input_tokens,
        "output_tokens": placement.output_tokens,
        "concurrent": placement.concurrent,
        "kv_bytes_per_token": placement.kv_bytes_per_token,
        "bytes": asdict(placement.parts) | {"kv_cache": kv_bytes},
    }


def _settings(plan: Plan, engine: EnginePlan, specs: Mapping[str, GpuSpec | None]) -> Report:
    model, tier = engine.placement.model, engine.placement.engine
    without_caps = loads(plan.case, {each.placement.model: Setting(each.fraction) for each in plan.engines})
    tokens = [load.tokens[model] for load in without_caps]
    return {
        "kv_tokens": engine.kv_tokens,
        "kv_blocks": engine.kv_tokens // TOKENS_PER_BLOCK,
        "requests_in_cache": engine.requests_in_cache,
        "requests_at_once": engine.requests_at_once,
        FRACTION: float(engine.fraction),
        CAP: engine.kv_tokens,
        "tokens_without_cap": [min(tokens), max(tokens)],
        "file": f"model_repository/{model}/"
        + ("configs/llmapi.pbtxt" if engine.placement.runtime == LLMAPI else "config.pbtxt"),
        "lines": plan_lines.of_config(plan, engine),
        "specs_table": f"{tier}.tensorrt_llm",
        "specs_lines": plan_lines.of_specs(engine.placement.spec, specs[tier], engine.placement.runtime),
    }


def for_people(report: Report, flags: Mapping[str, str]) -> str:
    """The report of a plan, of a shortage or of a check; `flags` are the command line's, by model."""
    if "check" in report:
        return _check_table(report)
    parts = _pictures(report)
    if report["fits"]:
        parts += [_table(report), *_specs(report), *(_file(model) for model in report["models"]), _remarks()]
    else:
        parts.append(_shortage(report, flags))
    if notes := dict.fromkeys(f"{model['source']}: {note}" for model in report["models"] for note in model["notes"]):
        parts.append("\n".join(notes))
    if _serves_quantised(report):
        parts.append(_SAVED_SO)
    return "\n\n".join(parts)


def _serves_quantised(report: Report) -> bool:
    """Whether the LLM API is to serve quantised weights, by the plan or by what is proposed."""
    proposed = any("quantisation" in keys for change in report.get("would_fit", ()) for keys in change.values())
    models = [model for model in report["models"] if model["runtime"] == LLMAPI]
    return bool(models) and (proposed or any(model["weights"] != SIXTEEN_BITS for model in models))


def _pictures(report: Report) -> list[str]:
    """One for each GPU, and one for all that look the same."""
    numbers: dict[str, list[int]] = {}
    for number in range(len(report["gpus"])):
        numbers.setdefault(_picture(report, number), []).append(number)
    return [f"GPU {', '.join(map(str, same))}: {picture}" for picture, same in numbers.items()]


def _picture(report: Report, number: int) -> str:
    gpu = report["gpus"][number]
    memory = gpu["memory_bytes"]
    rows = [("others", "", report["reserved_bytes"])] if report["reserved_bytes"] else []
    for model in report["models"]:
        ranks = sum(instance.count(number) for instance in model["gpus"])
        name = model["model"] if ranks == 1 else f"{model['model']} x{ranks}"
        parts = [(part, ranks * size) for part, size in model["bytes"].items() if ranks * size]
        rows += [(name if row == 0 else "", part.replace("_", " "), size) for row, (part, size) in enumerate(parts)]
    text = [f"{_gpu(gpu)}, {report['head_room']:.0%} to stay free"]
    drawn = max(memory, sum(size for _, _, size in rows))
    at, limit = 0, round(WIDTH * memory / drawn * (1 - report["head_room"]))
    for name, part, size in rows:
        start, end = round(WIDTH * at / drawn), round(WIDTH * (at + size) / drawn)
        bar = " " * start + "█" * max(1, end - start)
        text.append(f"  {name:<26}{part:<12}{size / GIB:8.2f} GiB  {bar[:limit]:<{limit}}|{bar[limit:]}".rstrip())
        at += size
    text.append(f"  {'together':<38}{at / GIB:8.2f} GiB, {at / memory:.0%}")
    return "\n".join(text)


def _gpu(gpu: Report) -> str:
    gib = f"{gpu['memory_bytes'] / GIB:.1f} GiB"
    return gib if gpu["name"][0].isdigit() else f"{gpu['name']}, {gib}"


def _table(report: Report) -> str:
    rows = [
        ("", [model["model"] for model in report["models"]]),
        ("model", [model["source"] for model in report["models"]]),
        ("parameters", [f"{model['parameters']:,}" for model in report["models"]]),
        ("weights; KV cache", [f"{model['weights']}; {model['kv_cache_dtype']}" for model in report["models"]]),
        ("tp x pp, instances", [f"{m['tp_size']} x {m['pp_size']}, {len(m['gpus'])}" for m in report["models"]]),
        ("max_batch_size", [f"{model['max_batch_size']:,}" for model in report["models"]]),
        ("max_num_tokens", [f"{model['max_num_tokens']:,}" for model in report["models"]]),
        ("max_seq_len", [f"{model['max_seq_len']:,}" for model in report["models"]]),
        ("KV bytes per token", [f"{model['kv_bytes_per_token']:,}" for model in report["models"]]),
        ("KV tokens", [f"{model['kv_tokens']:,}" for model in report["models"]]),
        ("KV blocks", [f"{model['kv_blocks']:,}" for model in report["models"]]),
        ("a request", [f"{m['input_tokens']:,} + {m['output_tokens']:,} tokens" for m in report["models"]]),
        ("in the cache", [f"{model['requests_in_cache']:,} requests" for model in report["models"]]),
        ("at once", [f"{m['requests_at_once']:,}; expected {m['concurrent']:,}" for m in report["models"]]),
        ("KV fraction", [f"{model[FRACTION]:.2f}" for model in report["models"]]),
        ("without the cap", [_range(*model["tokens_without_cap"]) for model in report["models"]]),
    ]
    width = 2 + max(len(cell) for _, cells in rows for cell in cells)
    return "\n".join((f"{name:<20}" + "".join(f"{cell:<{width}}" for cell in cells)).rstrip() for name, cells in rows)


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _specs(report: Report) -> list[str]:
    """What the engines have to be built of, where specs.toml says something else; an engine of two models once."""
    tables = {model["specs_table"]: model["specs_lines"] for model in report["models"]}
    return ["\n".join([f"engines/specs.toml, [{name}]:", *lines]) for name, lines in tables.items() if lines]


def _file(model: Report) -> str:
    return "\n".join([f"{model['file']}:", *model["lines"]])


def _remarks() -> str:
    return (
        "The cap decides, whichever model loads first; by the fraction alone it would be the tokens without the cap.\n"
        "Weights and KV cache follow from the model's shapes; an engine file is 1 or 2 % larger. Activations and\n"
        "buffers are bounds out of published logs; nothing was measured here. Compare them with the lines\n"
        "[MemUsageChange] of a first start.\n"
        "The text classifier runs on CPUs and takes nothing of it; where its config.pbtxt says KIND_GPU, about half a\n"
        "GiB for each instance, its process' CUDA context included, is counted among the others."
    )


def _shortage(report: Report, flags: Mapping[str, str]) -> str:
    needs, has, short = (f"{report[f'{key}_bytes'] / GIB:.2f} GiB" for key in ("needs", "has", "short"))
    ways = [" ".join(_flags(flags, change)) for change in report["would_fit"]]
    if report["smallest_gpu"]:
        count = f"{len(report['gpus'])}x" if len(report["gpus"]) > 1 else ""
        ways.append(f"--gpu {count}{report['smallest_gpu']}")
    if report["more_gpus"]:
        number, change = report["more_gpus"]
        gpu = report["gpus"][0]
        name = gpu["name"] if gpu["name"] in GPUS else f"{gpu['memory_bytes'] / GIB:.1f}"
        ways.append(" ".join([f"--gpu {number}x{name}", *_flags(flags, change)]))
    text = f"It doesn't fit: GPU {report['gpu']} needs {needs}, has {has} available, and is short by {short}."
    head = "Any of these would fit:" if ways else "None of the changes tried here would do, nor any GPU known here."
    return "\n".join([text, head, *(f"  {way}" for way in ways)])


def _flags(flags: Mapping[str, str], change: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [" ".join([flags[model], *(f"{k}={v}" for k, v in keys.items())]) for model, keys in change.items()]


def _check_table(report: Report) -> str:
    reserved = report["reserved_bytes"]
    others = f", {reserved / GIB:.2f} GiB of others" if reserved else ""
    text = [
        f"GPU {number}: {_gpu(gpu)}, {report['head_room']:.0%} to stay free{others}"
        for number, gpu in enumerate(report["gpus"])
    ]
    for model, setting in report["settings"].items():
        cap = "no cap" if setting[CAP] is None else f"cap {setting[CAP]:,} tokens"
        needs = f"needs {setting['needed_tokens']:,} tokens"
        text.append(f"  {model:<26}{setting['instances']} x  fraction {setting[FRACTION]:.2f}, {cap}; {needs}")
    for load in report["loads"]:
        full = ", ".join(
            f"GPU {number} {used / gpu['memory_bytes']:.0%} full"
            for number, (gpu, used) in enumerate(zip(report["gpus"], load["used_bytes"], strict=True))
        )
        tokens = ", ".join(f"{model} {tokens:,}" for model, tokens in load["tokens"].items())
        text += [
            f"{load['order']}: {full}",
            f"  tokens: {tokens}",
            *(f"  doesn't fit: {fault}" for fault in load["faults"]),
        ]
    text.append(
        "It fits." if report["fits"] else "It doesn't fit; without --check, this command prints settings that would."
    )
    return "\n".join(text)
