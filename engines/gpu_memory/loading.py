"""What KV cache each model gets when models load in some order, given the two settings of each: nothing here plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from math import floor

from engines.gpu_memory.placement import EnginePlacement
from engines.gpu_memory.plan import Case
from engines.gpu_memory.sizes import kv_blocks
from engines.tensorrt_llm.spec import TOKENS_PER_BLOCK

DEFAULT_FRACTION = Fraction(9, 10)  # TensorRT-LLM's own, where a config says nothing


@dataclass(frozen=True)
class Setting:
    """kv_cache_free_gpu_mem_fraction and max_tokens_in_paged_kv_cache of one model; None is no cap."""

    fraction: Fraction = DEFAULT_FRACTION
    cap: int | None = None


@dataclass(frozen=True)
class Load:
    """One way of loading. `tokens` of one instance by model, the least of them; 0 where one found no memory at all.

    `used` is bytes by GPU, others' included.
    """

    order: str
    tokens: Mapping[str, int]
    used: tuple[int, ...]


def loads(case: Case, settings: Mapping[str, Setting]) -> list[Load]:
    """One after the other in each order, and all at once, as Triton does: each looks before any cache is allocated."""
    orders = [_one_by_one(case, order, settings) for order in permutations(case.placements)]
    return [*orders, _at_once(case, settings)] if len(case.placements) > 1 else orders


def _one_by_one(case: Case, order: Sequence[EnginePlacement], settings: Mapping[str, Setting]) -> Load:
    used, tokens = [case.reserved] * len(case.gpus), dict[str, int]()
    for placement in order:
        for instance in placement.gpus:
            for gpu in instance:
                used[gpu] += placement.parts.total
            got = _tokens(case, used, placement, instance, settings[placement.model])
            for gpu in instance:
                used[gpu] += got * placement.kv_bytes_per_token
            tokens[placement.model] = min(got, tokens.get(placement.model, got))
    return Load(" then ".join(placement.model for placement in order), tokens, tuple(used))


def _at_once(case: Case, settings: Mapping[str, Setting]) -> Load:
    loaded = [case.reserved + case.loaded(gpu) for gpu in range(len(case.gpus))]
    used, tokens = list(loaded), dict[str, int]()
    for placement in case.placements:
        for instance in placement.gpus:
            got = _tokens(case, loaded, placement, instance, settings[placement.model])
            for gpu in instance:
                used[gpu] += got * placement.kv_bytes_per_token
            tokens[placement.model] = min(got, tokens.get(placement.model, got))
    return Load("all at once", tokens, tuple(used))


def _tokens(
    case: Case, used: Sequence[int], placement: EnginePlacement, instance: tuple[int, ...], setting: Setting
) -> int:
    """The ranks of an instance agree on what the poorest of them has."""
    free = min(case.gpus[gpu].memory - used[gpu] for gpu in instance)
    blocks = kv_blocks(floor(max(free, 0) * setting.fraction), placement.kv_bytes_per_token, TOKENS_PER_BLOCK)
    if setting.cap is not None:
        blocks = min(blocks, setting.cap // TOKENS_PER_BLOCK)
    return blocks * TOKENS_PER_BLOCK
