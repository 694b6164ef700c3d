"""An engine with the real one's contract whose answer is its prompt: tests know each token, and when it comes.

Its folder and the scripts that `seed` can name are in tests/server/echo_repository.py.
"""

import heapq
import itertools
import random
import threading
import time

import numpy as np

from bls import manifest, triton_io
from bls.contract import ENGINE
from bls.errors import BadRequest, Cancelled, EngineFailed
from bls.manifest import TABLE_FILE_NAME
from bls.tokens import byte_table
from tests.server.echo_repository import (
    CUT,
    ENDLESS,
    ENDS_EMPTY,
    FAILS_FIRST,
    FAILS_LATER,
    FINAL_ALONE,
    SILENT,
    STOP_IS_AN_ERROR,
)


class TritonPythonModel:
    def initialize(self, args):
        triton_io.log_to_triton()
        self.model = args["model_name"]
        self.cutter = Cutter(manifest.built_folder(triton_io.repository(args), "small") / TABLE_FILE_NAME)
        self.metrics = triton_io.Metrics()
        for name in ("started", "stopped", "tokens"):
            self.metrics.declare(f"echo_engine_{name}_total", "COUNTER", f"Requests or tokens {name}")
            self.count(name, 0)
        self.running = {}
        self.due = []  # (time, number, request id)
        self.numbers = itertools.count()
        self.changed = threading.Condition()
        self.open = True
        threading.Thread(target=self.run, daemon=True).start()

    def count(self, name, amount=1):
        self.metrics.add(f"echo_engine_{name}_total", amount, model=self.model)

    def execute(self, requests):
        for request in requests:
            sender = triton_io.Sender(request)
            tensors = triton_io.inputs(request, ENGINE)
            if "stop" in tensors and tensors["stop"].flat[0]:
                self.stop(request.request_id())
                sender.finish()
            else:
                parameters = triton_io.request_parameters(request)
                self.start(request.request_id(), Running(sender, tensors, parameters, self.cutter))

    def start(self, request_id, running):
        self.count("started")
        if running.kind == FAILS_FIRST:
            running.sender.finish(error=EngineFailed("told to fail"))
            return
        with self.changed:
            self.running[request_id] = running
            if running.kind not in (SILENT, STOP_IS_AN_ERROR):
                self.schedule(request_id, running)

    def schedule(self, request_id, running):
        heapq.heappush(self.due, (time.monotonic() + running.step_seconds, next(self.numbers), request_id))
        self.changed.notify()

    def stop(self, request_id):
        with self.changed:
            running = self.running.pop(request_id, None)
        if running is not None:
            self.count("stopped")
            if running.kind == STOP_IS_AN_ERROR:
                running.sender.finish(error=Cancelled("stopped"))
            else:
                running.sender.finish(running.response([]))

    def run(self):
        while self.open:
            with self.changed:
                now = time.monotonic()
                if not self.due or self.due[0][0] > now:
                    self.changed.wait(self.due[0][0] - now if self.due else None)
                    continue
                _, _, request_id = heapq.heappop(self.due)
                running = self.running.get(request_id)
            if running is not None:
                self.step(request_id, running)

    def step(self, request_id, running):
        if running.kind == FAILS_LATER and running.sent == 2:
            if running.errors_as_data:
                running.sender.finish({**running.response([]), "sequence_length": np.array([[-1]], dtype=np.int32)})
            else:
                running.sender.finish(error=EngineFailed("told to fail"))
            return
        ids = running.next_ids()
        is_last = running.is_complete()
        self.count("tokens", len(ids))
        if not running.streaming:
            if is_last:
                running.sender.finish(running.response(running.answer[: running.sent]))
        elif is_last and running.kind == FINAL_ALONE:
            running.sender.send(running.response(ids))
            running.sender.finish()
        elif is_last and running.kind == ENDS_EMPTY:
            running.sender.send(running.response(ids))
            running.sender.finish(running.response([]))
        elif is_last:
            running.sender.finish(running.response(ids))
        else:
            running.sender.send(running.response(ids))
        with self.changed:
            if is_last:
                self.running.pop(request_id, None)
            else:
                self.schedule(request_id, running)

    def finalize(self):
        with self.changed:
            self.open = False
            self.changed.notify()


class Cutter:
    """Says the same text in other tokens."""

    def __init__(self, path):
        self.table = byte_table.open_table(path)
        vocabulary = range(self.table.header.vocab_size)
        self.bytes = {self.table.piece(token): token for token in vocabulary if len(self.table.piece(token)) == 1}

    def cut(self, ids, rng):
        return [part for token in ids for part in (self.parts(token) if rng.random() < 0.7 else [token])]

    def parts(self, token):
        piece = self.table.piece(token)
        singles = [self.bytes.get(piece[at : at + 1]) for at in range(len(piece))]
        return [token] if None in singles else singles


class Running:
    def __init__(self, sender, tensors, parameters, cutter):
        self.sender = sender
        self.errors_as_data = parameters.get(triton_io.ERRORS_AS_DATA, False)
        script = int(tensors["seed"].flat[0]) if "seed" in tensors else 0
        self.kind, self.step_seconds = script // 1000, (script % 1000) / 1000
        prompt = tensors["input_ids"].reshape(-1).tolist()
        limit = int(tensors["request_output_len"].flat[0])
        self.sizes = random.Random(script % 1000) if self.kind == CUT else None
        if self.sizes:
            prompt, self.step_seconds = cutter.cut(prompt, self.sizes), 0
        copies = -(-limit // len(prompt)) if self.kind == ENDLESS else 1
        self.answer = (prompt * copies)[:limit]
        self.streaming = bool(tensors["streaming"].flat[0]) if "streaming" in tensors else False
        if "bad_words_list" in tensors:
            raise BadRequest("bad_words_list is not supported by the echo engine")
        self.sent = 0

    def next_ids(self):
        size = self.sizes.randint(1, 4) if self.sizes else 1
        ids = self.answer[self.sent : self.sent + size]
        self.sent += len(ids)
        return ids

    def is_complete(self):
        return self.sent >= len(self.answer)

    @staticmethod
    def response(ids):
        return {
            "output_ids": np.array([[ids]], dtype=np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(ids)]], dtype=np.int32),
        }
