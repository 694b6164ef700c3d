"""What stands in for an engine's parts: a pipeline that counts, a worker that is a thread, a client that remembers."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from bls.errors import BadRequest, RouterError
from bls.manifest import Manifest
from engines.worker import worker
from engines.worker.generation import Generation
from engines.worker.parameters import EngineParameters
from engines.worker.pipeline import Figure, Produced
from engines.worker.scheduler import Scheduler

REFUSED_ID = 99


class CountingPipeline:
    """Continues each prompt by its last id + 1, + 2, ...; refuses prompts that begin with 99."""

    schedules_itself = False

    def __init__(self, total_blocks: int = 8, block_tokens: int = 4) -> None:
        self.block_tokens = block_tokens
        self.total_blocks = total_blocks
        self.running: dict[int, Generation] = {}
        self.batches: list[tuple[int, ...]] = []
        self.before_step: Callable[[], None] = lambda: None
        self._made: dict[int, int] = {}
        self._cancelled: set[int] = set()
        self._used = 0
        self.is_closed = False

    def add(self, key: int, generation: Generation) -> None:
        if generation.prompt[0] == REFUSED_ID:
            raise BadRequest("refused by the pipeline")
        self.running[key] = generation
        self._made[key] = 0

    def cancel(self, key: int) -> None:
        self._cancelled.add(key)

    def used_blocks(self) -> int:
        return self._used

    def figures(self) -> tuple[Figure, ...]:
        return ()

    def close(self) -> None:
        self.is_closed = True

    def step(self) -> list[Produced]:
        self._used = sum(generation.kv_blocks(self.block_tokens) for generation in self.running.values())
        self.before_step()
        self.batches.append(tuple(self.running))
        produced = [self._next(key) for key in list(self.running) if key not in self._cancelled]
        for key in self._cancelled:
            del self.running[key]
        self._cancelled = set()
        return produced

    def _next(self, key: int) -> Produced:
        generation = self.running[key]
        self._made[key] += 1
        token = generation.prompt[-1] + self._made[key]
        ended = "end_id" if token in generation.end_ids else ""
        if not ended and self._made[key] == generation.max_tokens:
            ended = "length"
        if ended:
            del self.running[key]
        ids = () if ended == "end_id" else (token,)
        return Produced(key, ids, tuple(-token / 10 for token in ids) if generation.log_probs else (), ended)


def hang_up(connection: Connection) -> None:
    """Ends it for both sides, but does not close it: a thread that reads would go on with what has its number next."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


class ThreadWorker:
    """A worker in this process. `close` gives 0 unless it failed."""

    def __init__(self, pipeline: CountingPipeline, max_requests: int = 4) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.scheduler = Scheduler(pipeline, max_requests)
        self._exit_code = 0
        self._thread = threading.Thread(target=self._serve, args=(theirs,), daemon=True)
        self._thread.start()

    def close(self) -> int:
        self.connection.close()
        self._thread.join(10)
        return self._exit_code

    def _serve(self, connection: Connection) -> None:
        connection.send(worker.Ready(self.scheduler.statistics()))
        self._exit_code = worker.serve(connection, self.scheduler)


class RememberingSender:
    """What a client got: `responses` as lists of ids, then `error` or none. A second end is an error of the engine."""

    def __init__(self) -> None:
        self.responses: list[dict[str, np.ndarray]] = []
        self.error: RouterError | None = None
        self.ends = 0
        self.ended = threading.Event()
        self.got_one = threading.Event()
        self.left = False

    def is_cancelled(self) -> bool:
        return self.left

    def send(self, tensors: dict[str, np.ndarray]) -> None:
        self.responses.append(tensors)
        self.got_one.set()

    def finish(self, tensors: dict[str, np.ndarray] | None = None, error: RouterError | None = None) -> None:
        if tensors is not None:
            self.responses.append(tensors)
        self.error = error
        self.ends += 1
        self.ended.set()

    def ids(self) -> list[int]:
        assert self.ended.wait(10), "the stream never ended"
        return [token for tensors in self.responses for token in tensors["output_ids"].reshape(-1).tolist()]


class CountingProcess(CountingPipeline):
    """The same for a worker process, which makes it of what it is started with; "crash" in the folder: it fails."""

    def __init__(self, manifest: Manifest, parameters: EngineParameters) -> None:
        if "crash" in manifest.folder.name:
            raise RuntimeError("out of memory")
        super().__init__(total_blocks=64)
