"""An engine that keeps the real one's contract and only sleeps: so long a token, so many requests at a time.

`scripts.bench routing` puts it into a model repository as model.py; its parameters are `ms_per_token` and `streams`.
Its answer is its prompt, again and again up to request_output_len.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bls import triton_io
from bls.contract import ENGINE

PIECE_SECONDS = 0.1  # as often as a CPU engine sends what has gathered


class Running:
    """One request. `due` is when its next piece is ready."""

    def __init__(self, request: Any, sender: triton_io.Sender, arrays: Mapping[str, Any]) -> None:
        self.id = request.request_id() or f"unnamed {id(self)}"
        self.sender = sender
        self.prompt = arrays["input_ids"].reshape(-1)
        limit = int(arrays["request_output_len"].flat[0])
        self.answer = (self.prompt.tolist() * -(-limit // self.prompt.size))[:limit]
        self.streams = bool(arrays["streaming"].flat[0]) if "streaming" in arrays else False
        self.sent = 0
        self.is_stopped = False

    def response(self, ids: Sequence[int]) -> dict[str, Any]:
        return {
            "output_ids": np.array(ids, dtype=np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(ids)]], dtype=np.int32),
        }


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        parameters = triton_io.parameters(args)
        self.token_seconds = float(parameters["ms_per_token"]) / 1000
        self.free = int(parameters["streams"])
        self.piece_tokens = max(1, int(PIECE_SECONDS / self.token_seconds))
        self.start()

    def start(self) -> None:
        self.waiting: deque[Running] = deque()
        self.due: list[tuple[float, int, Running]] = []
        self.known: dict[str, Running] = {}
        self.numbers = itertools.count()
        self.changed = threading.Condition()
        self.is_open = True
        threading.Thread(target=self._run, daemon=True).start()

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = triton_io.Sender(request)
            arrays = triton_io.inputs(request, ENGINE)
            with self.changed:
                if "stop" in arrays and arrays["stop"].flat[0]:
                    self._stop(request.request_id())
                    sender.finish()
                else:
                    running = Running(request, sender, arrays)
                    self.known[running.id] = running
                    self.waiting.append(running)
                    self._admit()
                self.changed.notify()

    def finalize(self) -> None:
        with self.changed:
            self.is_open = False
            self.changed.notify()

    def _stop(self, name: str) -> None:
        if running := self.known.get(name):
            running.is_stopped = True
            heapq.heappush(self.due, (time.monotonic(), next(self.numbers), running))

    def _admit(self) -> None:
        while self.free and self.waiting:
            self.free -= 1
            self._schedule(self.waiting.popleft(), 1)  # The first token alone.

    def _schedule(self, running: Running, tokens: int) -> None:
        heapq.heappush(self.due, (time.monotonic() + tokens * self.token_seconds, next(self.numbers), running))

    def _run(self) -> None:
        while self.is_open:
            with self.changed:
                now = time.monotonic()
                if not self.due or self.due[0][0] > now:
                    self.changed.wait(self.due[0][0] - now if self.due else None)
                    continue
                running = heapq.heappop(self.due)[2]
                if running.id in self.known:
                    self._step(running)

    def _step(self, running: Running) -> None:
        size = self.piece_tokens if running.sent else 1
        if running in self.waiting:  # Stopped before it had a place.
            self.waiting.remove(running)
            self.free -= 1
        ids = [] if running.is_stopped else running.answer[running.sent : running.sent + size]
        running.sent += len(ids)
        if running.is_stopped or running.sent >= len(running.answer):
            running.sender.finish(running.response(ids if running.streams else running.answer[: running.sent]))
            del self.known[running.id]
            self.free += 1
            self._admit()
            return
        if running.streams:
            running.sender.send(running.response(ids))
        self._schedule(running, min(self.piece_tokens, len(running.answer) - running.sent))
