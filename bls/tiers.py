"""Which tiers this server has: one for each folder tensorrt_llm_<tier> of the model repository, by convention.

Such a folder serves the engine that lies in engines/built/<tier>. Nothing else lists the tiers, so a further one is a
model folder, its table in engines/specs.toml and its line in the policy's TIERS.
"""

from __future__ import annotations

from pathlib import Path

from bls.contract import ENGINE_PREFIX, LARGE, NVIDIA_NAMES, SMALL
from bls.paths import MODEL_REPOSITORY


def engine_models(repository: Path = MODEL_REPOSITORY) -> tuple[str, ...]:
    """The engine models whose folders hold a config, the two shipped ones first."""
    found = {path.parent.name for path in repository.glob(f"{ENGINE_PREFIX}*/config.pbtxt")}
    found |= {path.parent.parent.name for path in repository.glob(f"{ENGINE_PREFIX}*/configs/*.pbtxt")}
    return tuple(
        sorted(filter(is_engine, found), key=lambda model: (model not in (SMALL, LARGE), model == LARGE, model))
    )


def tiers(repository: Path = MODEL_REPOSITORY) -> tuple[str, ...]:
    """As in "small", "large"."""
    return tuple(map(tier_of, engine_models(repository)))


def tier_of(model: str) -> str:
    """The tier that an engine model serves. Raises ValueError for any other model."""
    if not is_engine(model):
        raise ValueError(f"{model} is not an engine model; their names begin with {ENGINE_PREFIX}")
    return model.removeprefix(ENGINE_PREFIX)


def is_engine(model: str) -> bool:
    return model.startswith(ENGINE_PREFIX) and model not in (ENGINE_PREFIX, *NVIDIA_NAMES)
