"""What would fit, for engines that don't: changes of keys, each tried by the plan, and the smallest known GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engines.gpu_memory.known import GPUS, gpu
from engines.gpu_memory.placement import BadPlacement, EnginePlacement
from engines.gpu_memory.placement_keys import SPEC_KEYS, Keys, changed
from engines.gpu_memory.plan import Case, DoesNotFit, plan
from engines.gpu_memory.sizes import TENSORRT
from engines.tensorrt_llm.spec import BadGpuSpec
from engines.tensorrt_llm.suitability import has_fp8, unsuited

TP_SIZES = (2, 4, 8, 16)
SMALLEST_BATCH = 64  # requests; the max_batch_size of the tiers' config.pbtxt
SMALLEST_ITERATION = 2048  # tokens; a long prompt in smaller pieces is slow, and trtllm-bench goes no lower either


def changes(case: Case) -> list[dict[str, Keys]]:
    """Keys by model, each enough: of each kind of change the mildest that is; if none, several changes together."""
    found = []
    for placement in _heaviest_first(case):
        for ladder in _ladders(case, placement):
            step = next((keys for keys in ladder if _fits(case, {placement.model: keys})), None)
            if step:
                found.append({placement.model: step})
    return found or list(_together(case))


def smallest_gpu(case: Case) -> str | None:
    """The name of the known GPU with the least memory that would do, as many of them; None if the largest wouldn't."""
    for name in sorted(GPUS, key=lambda name: GPUS[name][0]):
        try:
            plan(replace(case, gpus=(gpu(name),) * len(case.gpus)))
        except (DoesNotFit, BadPlacement):
            continue
        return name
    return None


def more_gpus(case: Case) -> tuple[int, dict[str, Keys]] | None:
    """So many GPUs like the first, and the tensor parallelism of the heaviest model over them; None if 16 won't do."""
    heaviest = _heaviest_first(case)[0]
    for count in TP_SIZES:
        keys: dict[str, Keys] = {heaviest.model: {"tp_size": count}}
        enough = replace(case, gpus=case.gpus[:1] * count) if count > len(case.gpus) else None
        if enough and _fits(enough, keys):
            return count, keys
    return None


def _fits(case: Case, keys: dict[str, Keys]) -> bool:
    """Whether it does with other `keys`; those of an engine hold for all models that load it."""
    engines = {
        placement.engine: _of_engine(keys[placement.model])
        for placement in case.placements
        if _of_engine(keys.get(placement.model, {}))
    }
    try:
        placements = [
            changed(placement, {**keys.get(placement.model, {}), **engines.get(placement.engine, {})}, len(case.gpus))
            for placement in case.placements
        ]
        plan(replace(case, placements=tuple(placements)))
    except (DoesNotFit, BadPlacement, BadGpuSpec):
        return False
    return True


def _of_engine(keys: Keys) -> Keys:
    return {key: value for key, value in keys.items() if key in SPEC_KEYS}


def _heaviest_first(case: Case) -> list[EnginePlacement]:
    return sorted(case.placements, key=lambda placement: -placement.parts.total)


def _is_first_of_its_engine(case: Case, placement: EnginePlacement) -> bool:
    return placement is next(each for each in case.placements if each.engine == placement.engine)


def _ladders(case: Case, placement: EnginePlacement) -> Iterator[list[Keys]]:
    """Of each kind of change its steps, the mildest first."""
    spec = placement.spec
    if len(placement.gpus) == 1:
        yield _places(placement, len(case.gpus))
    if _is_first_of_its_engine(case, placement):
        yield [
            {"max_num_tokens": n} for n in _halves(spec.max_num_tokens, max(SMALLEST_ITERATION, spec.max_batch_size))
        ]
        yield _eight_bits(case, placement)
        yield _four_bits(placement)
        yield [{"tp_size": tp} for tp in TP_SIZES if tp > spec.tp_size and tp * spec.pp_size <= len(case.gpus)]
        yield [{"max_seq_len": n} for n in _halves(spec.max_seq_len, placement.input_tokens + placement.output_tokens)]
        yield [_batch(placement, n) for n in _halves(spec.max_batch_size, SMALLEST_BATCH)]
    yield [{"instances": n} for n in range(len(placement.gpus) - 1, 0, -1)]
    yield [{"concurrent": n} for n in _halves(placement.concurrent, 1)]


def _places(placement: EnginePlacement, gpus: int) -> list[Keys]:
    """Other GPUs for a model of one instance."""
    size = placement.spec.world_size
    groups = [tuple(range(first, first + size)) for first in range(0, gpus - size + 1, size)]
    return [{"gpus": ",".join(map(str, group))} for group in groups if group != placement.gpus[0]]


def _batch(placement: EnginePlacement, size: int) -> Keys:
    """A smaller max_batch_size, with as many requests as it allows."""
    most = size * len(placement.gpus)
    return {"max_batch_size": size} | ({"concurrent": most} if most < placement.concurrent else {})


def _eight_bits(case: Case, placement: EnginePlacement) -> list[Keys]:
    if placement.quantisation != "none":
        return []
    if all(has_fp8(gpu.capability) for gpu in case.gpus):
        return [{"quantisation": "fp8"}, {"quantisation": "fp8", "kv_cache_dtype": "fp8"}]
    return [{"quantisation": "int8_weight_only"}] if placement.runtime == TENSORRT else []


def _four_bits(placement: EnginePlacement) -> list[Keys]:
    can_be = placement.quantisation == "none" and placement.runtime == TENSORRT
    return [{"quantisation": "int4_awq"}] if can_be else []


def _together(case: Case) -> Iterator[dict[str, Keys]]:
    """At most one: ever harder cuts, each made to the heaviest model first and then kept; with that model on as many
    GPUs as there are, if that helps."""
    for spread in (_spread(case), {}):
        keys: dict[str, Keys] = {placement.model: spread.get(placement.model, {}) for placement in case.placements}
        for number in range(6):
            for placement in _heaviest_first(case):
                keys[placement.model] = {**keys[placement.model], **_cut(case, placement, number)}
                if _fits(case, keys):
                    yield _needed(case, keys)
                    return


def _spread(case: Case) -> dict[str, Keys]:
    heaviest = _heaviest_first(case)[0]
    spec, most = heaviest.spec, len(case.gpus) // heaviest.spec.pp_size
    sizes = [tp for tp in TP_SIZES if spec.tp_size < tp <= most]
    suited = [tp for tp in sizes if unsuited(replace(spec, tp_size=tp), heaviest.shape.dimensions) is None]
    return {heaviest.model: {"tp_size": suited[-1]}} if suited else {}


def _cut(case: Case, placement: EnginePlacement, number: int) -> Keys:
    if number in (2, 3, 4):
        kept = min(placement.concurrent, SMALLEST_BATCH * len(placement.gpus))
        return {"concurrent": max(1, kept >> (number - 1))}
    if not _is_first_of_its_engine(case, placement):
        return {}
    if number == 0:
        batch = min(SMALLEST_BATCH, placement.spec.max_batch_size)
        tokens = max(SMALLEST_ITERATION, batch)
        fewer = {"max_num_tokens": tokens} if tokens < placement.spec.max_num_tokens else {}
        return {**fewer, **(_batch(placement, batch) if batch < placement.spec.max_batch_size else {})}
    step = _eight_bits(case, placement)[-1:] if number == 1 else _four_bits(placement)
    return {"kv_cache_dtype": "auto", **step[0]} if step else {}


def _needed(case: Case, keys: dict[str, Keys]) -> dict[str, Keys]:
    """`keys`, which are enough, without those that it takes no more."""
    for model in keys:
        for key in list(keys[model]):
            fewer = keys | {model: {name: value for name, value in keys[model].items() if name != key}}
            if _fits(case, fewer):
                keys = fewer
    return {model: found for model, found in keys.items() if found}


def _halves(number: int, least: int) -> list[int]:
    halves = []
    while number // 2 >= least:
        number //= 2
        halves.append(number)
    return halves
