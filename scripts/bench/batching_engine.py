"""An engine that keeps the real one's contract, batches in flight and only sleeps: scripts/bench/step_batch.py.

`scripts.bench simulation` puts it into a model repository as model.py; its parameters are the fields of
scripts.simulate.pod.Engine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bls import triton_io
from engines.triton.engine_metrics import EngineMetrics
from engines.worker.scheduler import Statistics
from scripts.bench.batching_names import BEGINNING, COUNTERS, HITS, REQUESTS, TOKENS
from scripts.bench.paced_engine import PIECE_SECONDS, Running
from scripts.bench.paced_engine import TritonPythonModel as PacedModel
from scripts.bench.step_batch import StepBatch
from scripts.simulate.pod import Engine


class TritonPythonModel(PacedModel):
    def initialize(self, args: Mapping[str, str]) -> None:
        given = triton_io.parameters(args)
        numbers: dict[str, Any] = {each.name: float(given[each.name]) for each in fields(Engine)}
        self.batch = StepBatch(Engine(**numbers))
        self.sent_at: dict[str, float] = {}
        self.figures = EngineMetrics(args["model_name"], args["model_version"])
        self.told_at = 0.0
        self.counters = triton_io.Metrics()
        self.model = args["model_name"]
        for name in COUNTERS:
            self.counters.declare(name, "COUNTER", "of scripts/bench/batching_engine.py")
            self._count(name, 0)
        self.start()

    def _count(self, name: str, amount: float) -> None:
        self.counters.add(name, amount, model=self.model)

    def _admit(self) -> None:
        """A request has come, or left."""
        while self.waiting:
            running = self.waiting.popleft()
            self._count(REQUESTS, 1)
            beginning = running.prompt[:BEGINNING].tobytes()
            self.batch.add(running.id, beginning, running.prompt.size, len(running.answer))

    def _stop(self, name: str) -> None:
        if running := self.known.pop(name, None):
            self.batch.drop(name)
            running.sender.finish(running.response([]))

    def _run(self) -> None:
        """Step after step. One that was late is made up for by the next ones, so that a busy machine slows nothing."""
        end_of_step: float | None = None
        while self.is_open:
            with self.changed:
                if not self.batch.outstanding:
                    end_of_step = None
                    self.changed.wait()
                    continue
                begin = time.monotonic() if end_of_step is None else end_of_step
                hits = self.batch.hits
                end_of_step = begin + self.batch.begin()
                self._count(HITS, self.batch.hits - hits)
            time.sleep(max(0.0, end_of_step - time.monotonic()))
            with self.changed:
                for name, made in self.batch.end().items():
                    if running := self.known.get(name):
                        self._hand_on(running, made)
                self._tell()

    def _hand_on(self, running: Running, made: int) -> None:
        """The first token at once, the others as often as a CPU engine sends what has gathered."""
        now = time.monotonic()
        is_last = made == len(running.answer)
        is_due = made > running.sent and (not running.sent or now - self.sent_at[running.id] >= PIECE_SECONDS)
        if not (is_last or is_due):
            return
        ids, running.sent = running.answer[running.sent : made], made
        self.sent_at[running.id] = now
        self._count(TOKENS, len(ids))
        if is_last:
            running.sender.finish(running.response(ids if running.streams else running.answer))
            del self.known[running.id], self.sent_at[running.id]
        elif running.streams:
            running.sender.send(running.response(ids))

    def _tell(self) -> None:
        """As often as a real engine, and once nothing runs."""
        now = time.monotonic()
        if self.batch.outstanding and now - self.told_at < PIECE_SECONDS:
            return
        self.told_at = now
        places = self.batch.engine.places
        self.figures.publish(
            Statistics(
                active=self.batch.outstanding,
                scheduled=len(self.batch.running),
                most=places,
                used_blocks=len(self.batch.running),
                total_blocks=places,
                block_tokens=BEGINNING // 2,
            )
        )
