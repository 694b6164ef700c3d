"""Engines on GPUs: how many tokens the KV cache of each gets, and the two settings that say so.

A KV cache is bounded twice, and the smaller bound holds: by a fraction of what is free once the engine is loaded, which
depends on who has loaded before, and by a cap in tokens, which doesn't. So the cap carries the plan, and the fraction
is what the cap needs when the engine loads last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from engines.gpu_memory.placement import BadPlacement, EnginePlacement, Gpu
from engines.gpu_memory.sizes import GIB
from engines.tensorrt_llm.spec import TOKENS_PER_BLOCK
from engines.tensorrt_llm.suitability import has_fp8, has_integer_weights, lacks

HEAD_ROOM = Fraction(1, 5)


class DoesNotFit(Exception):
    """The engines need more than a GPU has to give; all numbers are bytes of the GPU that lacks most."""

    def __init__(self, gpu: int, needs: int, has: int) -> None:
        super().__init__(f"GPU {gpu} needs {needs / GIB:.2f} GiB, has {has / GIB:.2f} GiB available")
        self.gpu, self.needs, self.has, self.short = gpu, needs, has, needs - has


@dataclass(frozen=True)
class Case:
    """What is to fit. `reserved` bytes of each GPU are others'; `head_room`, a share of it, is to be left free.

    Raises BadPlacement if a placement doesn't suit the GPUs.
    """

    gpus: tuple[Gpu, ...]
    placements: tuple[EnginePlacement, ...]
    head_room: Fraction = HEAD_ROOM
    reserved: int = 0

    def __post_init__(self) -> None:
        for placement in self.placements:
            for number in placement.used_gpus:
                if number >= len(self.gpus):
                    raise BadPlacement(
                        f"{placement.model} is to run on GPU {number}; there are {len(self.gpus)}, counted from 0"
                    )
                gpu = self.gpus[number]
                if placement.is_fp8 and not has_fp8(gpu.capability):
                    raise BadPlacement(
                        f"{placement.model} is in fp8, which {gpu.name} can't compute; Ada, Hopper and later GPUs can"
                    )
                if placement.is_integer and not has_integer_weights(gpu.capability):
                    raise BadPlacement(
                        f"{placement.model} is in {placement.quantisation}, "
                        f"which is not possible for {gpu.name}: use fp8"
                    )
                if missing := lacks(gpu.capability, placement.quantisation):
                    raise BadPlacement(f"{placement.model} is in {placement.quantisation}; {gpu.name} {missing}")

    def usable(self, gpu: int) -> int:
        """Bytes that the placements may take of a GPU."""
        return floor(self.gpus[gpu].memory * (1 - self.head_room)) - self.reserved

    def loaded(self, gpu: int) -> int:
        """Bytes of all ranks on a GPU without their KV caches."""
        return sum(placement.ranks_on(gpu) * placement.parts.total for placement in self.placements)

    def needed_cache(self, gpu: int) -> int:
        """Bytes of the KV caches on a GPU that are needed at least."""
        return sum(
            placement.ranks_on(gpu) * placement.needed_tokens * placement.kv_bytes_per_token
            for placement in self.placements
        )


@dataclass(frozen=True)
class EnginePlan:
    """What one model gets. Tokens and bytes are one rank's, and each of its instances gets as many."""

    placement: EnginePlacement
    kv_tokens: int
    fraction: Fraction = Fraction(0)

    @property
    def kv_bytes(self) -> int:
        return self.kv_tokens * self.placement.kv_bytes_per_token

    @property
    def requests_in_cache(self) -> int:
        """Requests of the given lengths that the KV cache of one instance holds."""
        return self.kv_tokens // self.placement.tokens_per_request

    @property
    def requests_at_once(self) -> int:
        """Over all instances; max_batch_size may allow fewer than the cache holds."""
        return len(self.placement.gpus) * min(self.requests_in_cache, self.placement.spec.max_batch_size)


@dataclass(frozen=True)
class Plan:
    """Engines that fit."""

    case: Case
    engines: tuple[EnginePlan, ...]

    def used(self, gpu: int) -> int:
        """Bytes of all ranks on a GPU, and of others."""
        caches = sum(each.placement.ranks_on(gpu) * each.kv_bytes for each in self.engines)
        return self.case.reserved + self.case.loaded(gpu) + caches


def plan(case: Case) -> Plan:
    """All get what they need, and more in proportion where there is more. Raises DoesNotFit."""
    numbers = range(len(case.gpus))
    needs = [case.loaded(gpu) + case.needed_cache(gpu) for gpu in numbers]
    worst = max(numbers, key=lambda gpu: needs[gpu] - case.usable(gpu))
    if needs[worst] > case.usable(worst):
        raise DoesNotFit(worst, needs[worst], case.usable(worst))
    draft = Plan(case, tuple(EnginePlan(placement, _tokens(case, placement)) for placement in case.placements))
    return Plan(case, tuple(replace(each, fraction=_fraction(draft, each)) for each in draft.engines))


def _tokens(case: Case, placement: EnginePlacement) -> int:
    """All caches on a GPU grow by one factor; a model on several GPUs by that of the fullest."""
    grows = min(Fraction(case.usable(gpu) - case.loaded(gpu), case.needed_cache(gpu)) for gpu in placement.used_gpus)
    return floor(placement.needed_tokens * grows) // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK


def _fraction(draft: Plan, engine: EnginePlan) -> Fraction:
    """Of what is free when everything else has loaded, rounded up to hundredths, so that the cap decides."""
    gpus = draft.case.gpus
    free = min(gpus[gpu].memory - draft.used(gpu) + engine.kv_bytes for gpu in engine.placement.used_gpus)
    return Fraction(ceil(100 * Fraction(engine.kv_bytes, free)), 100)
