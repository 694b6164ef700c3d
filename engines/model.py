"""The Triton model of a tier: an engine that a process of this server computes, or servers elsewhere that are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bls import triton_io

REMOTE = "remote"  # the value of the parameter `engine`; engines/triton/libraries.py has the others


class EngineModel(Protocol):
    """`execute` begins requests and returns."""

    def execute(self, requests: Sequence[Any]) -> None: ...

    def close(self) -> None: ...


def engine_model(args: Mapping[str, str]) -> EngineModel:
    """What config.pbtxt's parameter `engine` names; each kind imports what it needs, and nothing of the other's."""
    if triton_io.parameters(args).get("engine") == REMOTE:
        from engines.remote import remote_model

        return remote_model.RemoteModel(args)
    from engines.triton import triton_model

    return triton_model.EngineModel(args)
