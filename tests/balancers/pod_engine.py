"""The echo engine as an endpoint picker and a balancer see one: with places, a queue, metrics, and a pod that is slow.

What it does differently a test turns while the pod serves: tests/balancers/knobs.py.
"""

from __future__ import annotations

import math
from collections import deque

from bls import triton_io
from engines.triton.triton_model import EngineMetrics
from engines.worker.scheduler import Statistics
from tests.balancers import knobs
from tests.server.echo_engine import TritonPythonModel as Echo

BLOCKS, BLOCK_TOKENS = 100, 32


class TritonPythonModel(Echo):
    def initialize(self, args):
        super().initialize(args)
        self.folder = triton_io.repository(args).parent
        self.waiting = deque()
        self.figures = EngineMetrics(args["model_name"], args["model_version"])
        self.tell()

    def knob(self, name, default):
        return knobs.read(self.folder, name, default)

    def start(self, request_id, running):
        running.step_seconds *= self.knob("slowdown", 1)
        with self.changed:
            must_wait = len(self.running) >= self.knob("places", 1000)
            if must_wait:
                self.count("started")
                self.waiting.append((request_id, running))
        if not must_wait:
            super().start(request_id, running)
        self.tell()

    def stop(self, request_id):
        with self.changed:
            left = [(name, running) for name, running in self.waiting if name == request_id]
            self.waiting = deque(item for item in self.waiting if item[0] != request_id)
        for _, running in left:
            self.count("stopped")
            running.sender.finish(running.response([]))
        super().stop(request_id)
        self.admit()

    def step(self, request_id, running):
        size = len(running.answer)
        if running.sent == size - 1 and size >= self.knob("held", math.inf):
            with self.changed:
                self.schedule(request_id, running)
            return
        super().step(request_id, running)
        if running.is_complete():
            self.admit()

    def admit(self):
        with self.changed:
            while self.waiting and len(self.running) < self.knob("places", 1000):
                request_id, running = self.waiting.popleft()
                self.running[request_id] = running
                self.schedule(request_id, running)
        self.tell()

    def tell(self):
        with self.changed:
            running, waiting = len(self.running), len(self.waiting)
            used = min(BLOCKS, running)
            self.figures.publish(
                Statistics(
                    active=running + waiting,
                    scheduled=running,
                    most=self.knob("places", 1000),
                    used_blocks=used,
                    total_blocks=BLOCKS,
                    block_tokens=BLOCK_TOKENS,
                )
            )
