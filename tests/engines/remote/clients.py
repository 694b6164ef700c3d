"""A client of a tier in tests: what it got, and when its end came."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np

from bls.errors import RouterError
from engines.remote.tier import Tier

OUTPUTS = frozenset({"output_ids", "sequence_length"})
PATIENCE_S = 60.0


class Client:
    """A Sender. `ids` are those that have come, `error` is None after an end without one."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.error: RouterError | None = None
        self.ends = 0
        self.names: set[str] = set()
        self.has_left = False
        self.failed_as_data = False
        self._ended = threading.Event()
        self._news: queue.SimpleQueue[int] = queue.SimpleQueue()

    def is_cancelled(self) -> bool:
        return self.has_left

    def send(self, tensors: Any) -> None:
        self._take(tensors)

    def finish(self, tensors: Any = None, error: RouterError | None = None) -> None:
        self._take(tensors or {})
        self.error = error
        self.ends += 1
        self._ended.set()

    def wait_for_ids(self, count: int) -> None:
        while len(self.ids) < count:
            self._news.get(timeout=PATIENCE_S)

    def wait(self) -> Client:
        assert self._ended.wait(PATIENCE_S), "the stream hangs"
        return self

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def _take(self, tensors: Any) -> None:
        self.names |= set(tensors)
        ids = tensors["output_ids"].reshape(-1).tolist() if "output_ids" in tensors else []
        length = tensors["sequence_length"].item() if "sequence_length" in tensors else len(ids)
        self.failed_as_data |= length < 0 or ids == [-1]
        if length > 0 and ids != [-1]:
            self.ids += ids
            for _ in range(length):
                self._news.put(1)


def ask(
    tier: Tier,
    ids: list[int],
    tokens: int = 100,
    script: int = 0,
    request_id: str = "",
    errors_as_data: bool = False,
    timeout_seconds: float | None = None,
    outputs: frozenset[str] = OUTPUTS,
) -> Client:
    """Begins a request; its answer is its prompt, as tests/engine_server.py tells it."""
    client = Client()
    tensors = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([len(ids)], np.int32),
        "request_output_len": np.array([tokens], np.int32),
        "seed": np.array([script], np.uint64),
        "streaming": np.array([True]),
    }
    tier.submit(request_id, tensors, outputs, client, errors_as_data, timeout_seconds)
    return client
