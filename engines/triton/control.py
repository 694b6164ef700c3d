"""Stops a running request of an engine by its request id, and says which model an engine has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bls import manifest
from bls.arrays import Array, strings
from bls.contract import ENGINE_PREFIX
from bls.errors import BadRequest
from bls.ports import Models
from bls.tiers import is_engine, tier_of
from engines.triton import identity
from engines.triton.tensors import Arrays


class Control:
    """What engine_control answers, of the engines of a model repository."""

    def __init__(self, models: Models, repository: Path) -> None:
        self._models = models
        self._repository = repository

    def answer(self, inputs: Arrays, requested: frozenset[str]) -> Arrays:
        """Stops if `stopped` is requested, once the engine knows; a request that is unknown or has ended is fine.

        `identity` is "" of an engine without an engine.json that can be read. Raises RouterError.
        """
        engine = _text(inputs, "engine")
        if not is_engine(engine):
            raise BadRequest(f"engine is {engine[:40]!r}; the names of engine models begin with {ENGINE_PREFIX}")
        found: dict[str, Array] = {}
        if "identity" in requested:
            found["identity"] = strings(self._identity(engine))
        if "stopped" in requested:
            self._stop(engine, _text(inputs, "request_id"))
            found["stopped"] = np.array([[True]])
        return found

    def _stop(self, engine: str, request_id: str) -> None:
        if not request_id:
            raise BadRequest("request_id is empty")
        for _ in self._models.stream(engine, _stop_tensors(), ["output_ids", "sequence_length"], request_id):
            pass

    def _identity(self, engine: str) -> str:
        try:
            return identity.written(
                identity.of(manifest.load(manifest.built_folder(self._repository, tier_of(engine))))
            )
        except manifest.BadManifest:
            return ""


def _text(inputs: Arrays, name: str) -> str:
    array = inputs[name]
    if array.size != 1:
        raise BadRequest(f"{name} holds {array.size} values; it must be a single value")
    value = array.reshape(-1)[0]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _stop_tensors() -> Arrays:
    """The engine reads `stop` alone; its mandatory inputs have to be there."""
    one = np.ones((1, 1), dtype=np.int32)
    return {"input_ids": one, "input_lengths": one, "request_output_len": one, "stop": np.array([[True]])}
