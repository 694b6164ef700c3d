"""One running request as its client sees it: which tensors each response holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from bls.errors import RouterError
from bls.ports import Sender
from engines.triton.coalescer import Coalescer, Pace
from engines.triton.tensors import Arrays, EngineRequest

FAILED = np.array([[-1]], dtype=np.int32)


def failure_as_data(requested: frozenset[str]) -> Arrays:
    """The last response in place of an error: sequence_length -1, or the id -1 where ids alone were requested."""
    if "sequence_length" in requested:
        return {"output_ids": np.empty((1, 1, 0), np.int32), "sequence_length": FAILED}
    return {"output_ids": FAILED.reshape(1, 1, 1)}


class Stream:
    """`requested` are the outputs that the client wants; nothing else is built."""

    def __init__(
        self, request_id: str, request: EngineRequest, requested: frozenset[str], sender: Sender, pace: Pace
    ) -> None:
        self.request_id = request_id
        self._streaming = request.streaming
        self._echo = () if request.exclude_input else request.generation.prompt
        self._log_probs = request.generation.log_probs
        self._requested = requested
        self._sender = sender
        self._coalescer = Coalescer(pace)
        self._cumulative_log_prob = 0.0
        self._errors_as_data = request.errors_as_data
        self._has_sent = False
        self.has_begun = False  # Whether the worker has given anything: another engine may still be asked.
        # What is to be done for it once the thread that waits with it moves again, see engines/triton/relay.py.
        self.backlog: deque[Callable[[], object]] | None = None

    def add(self, ids: tuple[int, ...], log_probs: tuple[float, ...]) -> None:
        self.has_begun = True
        self._coalescer.add(ids, log_probs)

    def due(self) -> float | None:
        """When it has to send, see Coalescer.due. A request that is not streamed has only its last response."""
        return self._coalescer.due() if self._streaming and self.backlog is None else None

    def send(self, now: float) -> None:
        self._has_sent = True
        self._sender.send(self._tensors(now))

    def finish(self, now: float) -> None:
        self._sender.finish(self._tensors(now))

    def fail(self, error: RouterError) -> None:
        """After data, a caller that can't receive an error (bls.triton_io.ERRORS_AS_DATA) gets what says so."""
        if self._errors_as_data and self._has_sent:
            self._sender.finish(failure_as_data(self._requested))
        else:
            self._sender.finish(error=error)

    def is_cancelled(self) -> bool:
        return self._sender.is_cancelled()

    def _tensors(self, now: float) -> Arrays:
        new_ids, log_probs = self._coalescer.take(now)
        self._cumulative_log_prob += sum(log_probs)
        ids = [*self._echo, *new_ids]
        self._echo = ()
        tensors: dict[str, np.ndarray[Any, Any]] = {}
        if "output_ids" in self._requested:
            tensors["output_ids"] = np.array([[ids]], dtype=np.int32)
        if "sequence_length" in self._requested:
            tensors["sequence_length"] = np.array([[len(ids)]], dtype=np.int32)
        if self._log_probs and "cum_log_probs" in self._requested:
            tensors["cum_log_probs"] = np.array([[self._cumulative_log_prob]], dtype=np.float32)
        if self._log_probs and "output_log_probs" in self._requested:
            tensors["output_log_probs"] = np.array([[log_probs]], dtype=np.float32)
        return tensors
