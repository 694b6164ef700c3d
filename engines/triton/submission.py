"""A request on its way to the engine."""

from __future__ import annotations

from dataclasses import dataclass

from bls.ports import Sender
from engines.triton.tensors import EngineRequest


@dataclass(frozen=True)
class Submission:
    """One request for the worker: `requested` are the outputs that its client wants, `sender` the way back."""

    request_id: str
    request: EngineRequest
    requested: frozenset[str]
    sender: Sender
