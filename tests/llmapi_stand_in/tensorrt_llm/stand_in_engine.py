"""A thread that counts where the LLM API's engine computes: iterations, in-flight batches, a paged cache, records."""

from __future__ import annotations

import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorrt_llm.stand_in_queue import AsyncQueue, EventLoopShutdownError

BLOCK_TOKENS = 32
CACHE_TOKENS = 4096  # Where max_tokens doesn't say less.
STEP_SECONDS = float(os.environ.get("LLMAPI_STAND_IN_STEP_SECONDS", "0.001"))
HANGS_AT_SHUTDOWN = "LLMAPI_STAND_IN_HANGS"  # Then there is a process below it too, as MPI would have started one.

# A prompt that begins with one of these goes wrong.
FAILS = 66  # The engine refuses the request.
DIES = 67  # The engine ends with all its requests.
FALLS_SILENT = 68  # Nothing is ever heard of any request again.
IS_CANCELLED = 69  # By the engine, unasked.


class EngineDied(RuntimeError):
    pass


@dataclass
class Response:
    ids: list[int]
    finish_reason: str | None = None
    stop_reason: int | None = None


@dataclass
class Request:
    prompt: list[int]
    params: Any
    responses: AsyncQueue
    made: int = 0
    is_aborted: bool = False
    draws: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draws = random.Random(self.params.seed)
        self._tokens = self._continuation()

    @property
    def blocks(self) -> int:
        return -(-(len(self.prompt) + self.params.max_tokens) // BLOCK_TOKENS)

    def next_response(self) -> Response:
        """One more token and whether it is the last, as end ids, stop words, the limit and a guide would have it."""
        params, token = self.params, next(self._tokens)
        self.made += 1
        if token == params.end_id and self.made <= (params.min_tokens or 0):
            token = next(self._tokens)
        if token == params.end_id:
            return Response([token], "stop")
        if token in (params.stop_token_ids or ()):
            return Response([token], "stop", token)
        return Response([token], "length" if self.made == params.max_tokens else None)

    def _continuation(self) -> Iterator[int]:
        params, last = self.params, self.prompt[-1]
        penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        step = 1 if penalties == (None, None, None) else 2
        is_greedy = params.top_k == 1 or (params.top_k, params.top_p, params.temperature) == (None, None, None)
        guided = _guided_length(params.guided_decoding)
        while guided is None or guided > 0:
            last = last + step if is_greedy else self.draws.randrange(100, 1100)
            guided = None if guided is None else guided - 1
            yield last
        yield params.end_id


def _guided_length(guide: Any) -> int | None:
    """How many tokens what fits the guide has: those of [x]{N}, of "letters", or any few."""
    if guide is None:
        return None
    if guide.regex:
        return int(re.search(r"{(\d+)}", guide.regex)[1])
    if guide.grammar:
        return len(re.search(r'"(.*)"', guide.grammar)[1])
    return 3


class Engine:
    def __init__(self, args: Any, record: Callable[[dict[str, Any]], object]) -> None:
        self.has_ended = False
        self._args, self._record = args, record
        self._blocks = min(args.kv_cache_config.max_tokens or CACHE_TOKENS, CACHE_TOKENS) // BLOCK_TOKENS
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._iteration = 0
        self._changed = threading.Condition()
        self._child = subprocess.Popen(["sleep", "600"]) if os.environ.get(HANGS_AT_SHUTDOWN) else None
        self._thread = threading.Thread(target=self._run, name="stand-in", daemon=True)
        self._thread.start()

    def add(self, request: Request) -> None:
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()

    def abort(self, request: Request) -> None:
        request.is_aborted = True

    def end(self) -> None:
        if self._child:
            self._child.wait()
        with self._changed:
            self.has_ended = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.has_ended or self._waiting or self._running)
                if self.has_ended:
                    return
                self._admit()
            try:
                if self._iterate():
                    return
            except EventLoopShutdownError:
                return
            time.sleep(STEP_SECONDS)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._args.max_batch_size:
            used = sum(request.blocks for request in self._running)
            if self._running and used + self._waiting[0].blocks > self._blocks:
                return
            self._running.append(self._waiting.pop(0))

    def _iterate(self) -> bool:
        """Whether the engine has died of it."""
        self._iteration += 1
        if any(request.prompt[0] == FALLS_SILENT for request in self._running):
            return True
        if any(request.prompt[0] == DIES for request in self._running):
            for request in self._running + self._waiting:
                request.responses.put(EngineDied("CUDA error: an illegal memory access was encountered"))
            return True
        scheduled = list(self._running)
        for request in self._running + self._waiting:
            if request.is_aborted:
                request.responses.put(Response([], "cancelled"))
        self._waiting = [request for request in self._waiting if not request.is_aborted]
        self._running = [request for request in self._running if not request.is_aborted and self._advance(request)]
        if self._args.enable_iter_perf_stats:
            self._record(self._statistics(scheduled))
        return False

    def _advance(self, request: Request) -> bool:
        """Whether it goes on."""
        if request.prompt[0] == FAILS:
            request.responses.put("Encountered an error in forward: no more LoRA slots in /opt/engine.cpp")
            return False
        response = Response([], "cancelled") if request.prompt[0] == IS_CANCELLED else request.next_response()
        request.responses.put(response)
        return response.finish_reason is None

    def _statistics(self, scheduled: list[Request]) -> dict[str, Any]:
        used = sum(request.blocks for request in self._running)
        first = sum(request.made <= 1 for request in scheduled)
        return {
            "iter": self._iteration,
            "cpuMemUsage": 1024,
            "gpuMemUsage": 1 << 30,
            "pinnedMemUsage": 4096,
            "numActiveRequests": len(self._running) + len(self._waiting),
            "kvCacheStats": {
                "maxNumBlocks": self._blocks,
                "freeNumBlocks": self._blocks - used,
                "usedNumBlocks": used,
                "tokensPerBlock": BLOCK_TOKENS,
                "reusedBlocks": 2,
                "missedBlocks": 6,
            },
            "inflightBatchingStats": {
                "numScheduledRequests": len(scheduled),
                "numContextRequests": first,
                "numGenRequests": len(scheduled) - first,
                "numPausedRequests": 0,
                "numCtxTokens": sum(len(request.prompt) for request in scheduled if request.made <= 1),
            },
        }
