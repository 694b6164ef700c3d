"""TensorRT-LLM's LLM as a Pipeline: it batches in flight by itself, we hand requests over and gather what comes.

The library wants an event loop that runs for as long as requests do: one thread of ours is that loop. Each request has
a reader in it, which puts what came into a queue; `step` takes it out. The library has processes of its own (MPI).
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from bls.errors import BadRequest, EngineFailed
from bls.manifest import Manifest
from engines.llmapi import figures, library
from engines.llmapi.grammar import GrammarCheck
from engines.llmapi.sampling import read_step, sampling_params
from engines.llmapi.settings import LlmApiParameters
from engines.worker import process_tree
from engines.worker.generation import Generation
from engines.worker.pipeline import Figure, Produced

log = logging.getLogger(__name__)

Result = TypeVar("Result")
News = tuple[Any, Produced]  # What came, and the RequestOutput that it came of.

_LONGEST_WAIT_SECONDS = 0.01  # For news: as long may a command wait that comes meanwhile.
_SECONDS_TO_WARM_UP = 300.0  # The first request may compile kernels.
_STATISTICS_SECONDS = 2.0  # Without a record: then the engine stands still. The library's own default.
_SECONDS_TO_SHUT_DOWN = 8.0  # Less than the patience of who started this process.
_BLOCK_TOKENS = 32  # TensorRT-LLM's default.
SHUT_DOWN_BY_FORCE = 4


class EngineSilent(RuntimeError):
    """No news for so long that the library counts as dead."""


class LlmApiPipeline:
    schedules_itself = True

    def __init__(self, manifest: Manifest, parameters: LlmApiParameters) -> None:
        self._settings = parameters
        self._llmapi = library.import_llmapi(parameters.gpu_device_ids)
        self._grammar = GrammarCheck()
        self._news: queue.SimpleQueue[News | Exception] = queue.SimpleQueue()
        self._running: dict[int, Any] = {}
        self._readers: set[asyncio.Task[None]] = set()  # The loop itself keeps no reference.
        self._record: figures.Record = {}
        self._heard_at = 0.0
        self._llm = self._llmapi.LLM(**library.arguments(self._llmapi, manifest, parameters))
        self._loop = asyncio.new_event_loop()
        self._has_begun = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llm api", daemon=True)
        self._thread.start()
        self._on_loop(self._warm_up(manifest), _SECONDS_TO_WARM_UP)
        self._describe_cache(manifest)
        self._on_loop(self._keep(self._watch()))

    def add(self, key: int, generation: Generation) -> None:
        params = self._params(generation)
        try:
            output = self._on_loop(self._submit(key, generation, params))
        except (ValueError, TypeError) as error:
            raise BadRequest(f"refused by TensorRT-LLM: {_last_line(error)}") from None
        if not self._running:
            self._heard_at = time.monotonic()
        self._running[key] = output

    def cancel(self, key: int) -> None:
        """Its reader goes on to the end, which comes soon: an iterator that is left alone leaks."""
        output = self._running.pop(key, None)
        if output is not None:  # It may have ended in the step in which the scheduler found its stop word.
            self._loop.call_soon_threadsafe(output.abort)

    def step(self) -> list[Produced]:
        """What has come since the last one. Raises what ended the library, EngineSilent above all."""
        produced: list[Produced] = []
        for output, one in self._take_news():
            if self._running.get(one.key) is output:  # Not of a request that was cancelled meanwhile.
                produced.append(one)
                if one.ended or one.error:
                    del self._running[one.key]
        return produced

    def used_blocks(self) -> int:
        """Of the last iteration; nothing is used when nothing runs: what may be reused counts as free."""
        used = figures.value(self._record, "kvCacheStats", "usedNumBlocks")
        return int(used or 0) if self._running else 0

    def figures(self) -> tuple[Figure, ...]:
        return figures.figures(self._record, bool(self._running))

    def close(self) -> None:
        """Ends the library's processes, by force if they don't end by themselves: for dead ones it waits for ever."""
        ending = threading.Thread(target=self._llm.shutdown, name="shutdown", daemon=True)
        ending.start()
        ending.join(_SECONDS_TO_SHUT_DOWN)
        if ending.is_alive():
            log.error(
                "TensorRT-LLM did not shut down within %g s; its processes are being killed", _SECONDS_TO_SHUT_DOWN
            )
            process_tree.kill_below(os.getpid())
            os._exit(SHUT_DOWN_BY_FORCE)  # Its exit hooks would wait for ever too.
        self._on_loop(self._end_readers())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _params(self, generation: Generation) -> Any:
        params = sampling_params(self._llmapi, generation, self._settings)
        if generation.guide is not None:
            self._grammar.check(generation.guide)
        return params

    def _on_loop(self, work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _end_readers(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _submit(self, key: int, generation: Generation, params: Any) -> Any:
        """On the loop: a request that is made elsewhere can't be iterated over there."""
        output = self._llm.generate_async(list(generation.prompt), params, streaming=True)
        await self._keep(self._read(key, generation, output))
        self._has_begun.set()
        return output

    async def _read(self, key: int, generation: Generation, output: Any) -> None:
        try:
            async for update in output:
                self._news.put((output, read_step(key, generation, update.outputs[0])))
        except self._llmapi.RequestError:  # It ends this request alone.
            log.exception("a request failed")
            error = EngineFailed("the engine failed at this request; the server's log says why")
            self._news.put((output, Produced(key, (), (), error=error)))
        except Exception as error:  # The library has shut down, or is of no use any more.
            self._news.put(error)

    def _take_news(self) -> list[News]:
        news: list[News] = []
        wait = _LONGEST_WAIT_SECONDS if self._running else 0.0
        with suppress(queue.Empty):
            while True:
                one = self._news.get(timeout=wait) if wait else self._news.get_nowait()
                if isinstance(one, Exception):
                    raise one
                news.append(one)
                wait = 0.0
        now = time.monotonic()
        if news:
            self._heard_at = now
        elif self._running and 0 < self._settings.longest_step_seconds < now - self._heard_at:
            # Its processes may have died: this one still steps, so that only the library's silence tells.
            raise EngineSilent(f"no news of {len(self._running)} requests for {now - self._heard_at:.0f} s")
        return news

    async def _warm_up(self, manifest: Manifest) -> None:
        """One token, since no record comes before the first request: it says how large the cache is."""
        first = Generation((manifest.end_ids[0],), 1, frozenset(manifest.end_ids))
        async for _ in self._llm.generate_async(list(first.prompt), self._params(first), streaming=True):
            pass
        async for record in self._llm.get_stats_async(timeout=_STATISTICS_SECONDS):
            self._record = record
            if figures.value(record, "kvCacheStats", "maxNumBlocks"):
                return

    def _describe_cache(self, manifest: Manifest) -> None:
        block_tokens = figures.value(self._record, "kvCacheStats", "tokensPerBlock")
        blocks = figures.value(self._record, "kvCacheStats", "maxNumBlocks")
        self.block_tokens = int(block_tokens or _BLOCK_TOKENS)
        if blocks:
            self.total_blocks = int(blocks)
            return
        tokens = self._settings.cache_tokens or manifest.context_tokens
        log.warning("TensorRT-LLM doesn't report the size of its KV cache; %d tokens are assumed", tokens)
        self.total_blocks = -(-tokens // self.block_tokens)

    async def _watch(self) -> None:
        """Keeps the last record. The iterator ends when nothing came for a while, and begins anew with a request."""
        while True:
            await self._has_begun.wait()
            self._has_begun.clear()
            async for record in self._llm.get_stats_async(timeout=_STATISTICS_SECONDS):
                self._record = record


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
