"""What the scheduler needs of a library that generates tokens: the one thing that a second engine has to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bls.errors import RouterError
from engines.worker.generation import Generation


@dataclass(frozen=True)
class Produced:
    """What one step gave to one request: `ids` without the end id, one log probability each if they were asked for.

    `ended` is "" while it goes on, else "end_id" or "length"; `error` ends this request alone.
    """

    key: int
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    ended: str = ""
    error: RouterError | None = None


@dataclass(frozen=True)
class Figure:
    """A value that the library itself knows, by TensorRT-LLM's metric family and the kind within it."""

    family: str
    kind: str
    value: float


class Pipeline(Protocol):
    """Called from one thread only. `block_tokens` and `total_blocks` describe its paged KV cache.

    One that `schedules_itself` is handed every request at once, and decides when each of them computes.
    """

    block_tokens: int
    total_blocks: int
    schedules_itself: bool

    def add(self, key: int, generation: Generation) -> None:
        """Takes a request in at the next step. Raises a RouterError (BadRequest, Busy), having taken nothing."""

    def cancel(self, key: int) -> None:
        """Ends a request, whose blocks are free after the next step; it produces nothing any more."""

    def step(self) -> list[Produced]:
        """Computes each request's next token, or a part of a prompt. After an exception the pipeline is lost.

        One that schedules itself gives what has come, and waits no longer for it than a command may.
        """

    def used_blocks(self) -> int:
        """Blocks of the KV cache that running requests hold, as seen at the beginning of the last step."""

    def figures(self) -> tuple[Figure, ...]:
        """What it can say beyond that."""

    def close(self) -> None:
        """Frees what the library holds, processes of its own above all. Nothing is called afterwards."""
