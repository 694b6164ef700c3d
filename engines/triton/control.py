"""Stops a running request of an engine by its request id."""

from __future__ import annotations

import numpy as np

from bls.contract import ENGINE_PREFIX
from bls.errors import BadRequest
from bls.ports import Models
from bls.tiers import is_engine
from engines.triton.tensors import Arrays


def stop(models: Models, inputs: Arrays) -> Arrays:
    """Answers once the engine knows. A request that is unknown or has ended is fine. Raises RouterError."""
    engine, request_id = _text(inputs, "engine"), _text(inputs, "request_id")
    if not is_engine(engine):
        raise BadRequest(f"engine is {engine[:40]!r}; the names of engine models begin with {ENGINE_PREFIX}")
    if not request_id:
        raise BadRequest("request_id is empty")
    for _ in models.stream(engine, _stop_tensors(), ["output_ids", "sequence_length"], request_id):
        pass
    return {"stopped": np.array([[True]])}


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
