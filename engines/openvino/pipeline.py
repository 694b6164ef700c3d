"""OpenVINO GenAI's ContinuousBatchingPipeline as a Pipeline.

Its step() holds the GIL throughout, so it lives in a process of its own (engines/worker/worker.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import openvino
import openvino_genai

from bls.errors import BadRequest, Busy, EngineFailed, RouterError
from bls.manifest import Manifest
from engines.openvino.compiling import Compiling
from engines.openvino.grammar import GrammarCheck, structured_output
from engines.openvino.model_path import readable_model
from engines.openvino.prefix_cache import PrefixCache
from engines.worker.generation import Generation, Guide, Sampling
from engines.worker.parameters import EngineParameters
from engines.worker.pipeline import Figure, Produced

log = logging.getLogger(__name__)

BLOCK_TOKENS = 32  # OpenVINO's KV block on CPUs.
DEFAULT_CONTEXTS_IN_CACHE = 4
_LONGEST_WAIT_SECONDS = 0.01  # For a grammar, where nothing else is to be done: as long may a command wait.
_ENDS = {"STOP": "end_id", "LENGTH": "length"}

# OpenVINO keeps every grammar that it compiled for as long as the pipeline lives. With SmolLM2's vocabulary a schema of
# 8 properties costs 0.1 MiB, one of 100 costs 10 MiB and one of 1,000 costs 67 MiB. Making the pipeline anew frees them
# (seconds), which is done when no request runs; an engine that is never idle takes no more guides at some point.
RENEW_GRAMMAR_BYTES = 256 * 2**20
MAX_GRAMMAR_BYTES = 2**30


def cache_tokens(manifest: Manifest, parameters: EngineParameters) -> int:
    """Size of the KV cache in tokens, a multiple of a block."""
    tokens = parameters.cache_tokens or DEFAULT_CONTEXTS_IN_CACHE * manifest.context_tokens
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS


class OpenVinoPipeline:
    schedules_itself = False

    def __init__(self, manifest: Manifest, parameters: EngineParameters) -> None:
        self.block_tokens = BLOCK_TOKENS
        self.total_blocks = cache_tokens(manifest, parameters) // BLOCK_TOKENS
        self._manifest = manifest
        self._parameters = parameters
        self._handles: dict[int, tuple[Any, Generation]] = {}
        self._load()

    def _load(self) -> None:
        with readable_model(self._manifest) as path:
            self._pipeline = openvino_genai.ContinuousBatchingPipeline(
                path, self._scheduler_config(self._parameters), "CPU", _properties(self._parameters)
            )
        self._grammar_check = GrammarCheck(self._pipeline.get_tokenizer(), self._manifest.vocab_size)
        self._compiling = Compiling(self._compile)
        self._prefix_cache = PrefixCache(self.total_blocks, BLOCK_TOKENS, self._parameters.reuse_cache)

    def add(self, key: int, generation: Generation) -> None:
        if generation.guide is None:
            self._begin(key, generation)
            return
        self._compiling.add(key, generation)

    def _begin(self, key: int, generation: Generation) -> None:
        config = _generation_config(generation)
        prompt = openvino.Tensor(np.array([generation.prompt], dtype=np.int64))
        try:
            handle = self._pipeline.add_request(key, prompt, config)
        except RuntimeError as error:
            raise BadRequest(f"refused by OpenVINO: {_last_line(error)}") from None
        self._handles[key] = (handle, generation)
        self._prefix_cache.begin(key, generation.prompt)

    def cancel(self, key: int) -> None:
        if not self._compiling.cancel(key):
            handle, _ = self._handles.pop(key)
            handle.cancel()
            self._prefix_cache.end(key)

    def step(self) -> list[Produced]:
        """One more than the last request needs is the chance to free grammars: all ids have left by then."""
        is_idle = not self._handles
        if is_idle and not self._compiling and self._grammar_check.kept_bytes >= RENEW_GRAMMAR_BYTES:
            log.info("reloading to free %d MiB of grammars", self._grammar_check.kept_bytes // 2**20)
            self._compiling.close()
            del self._pipeline, self._grammar_check, self._compiling  # Two at once would take twice the memory.
            self._load()
        refused = list(self._begin_compiled(_LONGEST_WAIT_SECONDS if is_idle else 0.0))
        self._pipeline.step()
        self._prefix_cache.step()
        return refused + list(self._read())

    def _compile(self, guide: Guide) -> None:
        """In a thread of its own."""
        if self._grammar_check.kept_bytes >= MAX_GRAMMAR_BYTES:
            raise Busy("the engine's memory for grammars is full; it is freed when no request is running")
        self._grammar_check.check(guide)

    def _begin_compiled(self, wait_seconds: float) -> Iterator[Produced]:
        """Takes in a request whose grammar is ready, or tells of one that is wrong."""
        for key, generation, error in self._compiling.take(wait_seconds):
            try:
                if error is not None:
                    raise error
                self._begin(key, generation)
            except RouterError as refusal:
                yield Produced(key, (), (), error=refusal)

    def used_blocks(self) -> int:
        percent: float = self._pipeline.get_metrics().cache_usage
        return round(percent / 100 * self.total_blocks)

    def figures(self) -> tuple[Figure, ...]:
        return (
            Figure("kv_cache_block", "reused", self._prefix_cache.reused),
            Figure("kv_cache_block", "missed", self._prefix_cache.missed),
        )

    def close(self) -> None:
        """It has no process of its own, and its memory ends with this one."""

    def _read(self) -> Iterator[Produced]:
        for key, (handle, generation) in list(self._handles.items()):
            outputs = list(_outputs(handle))
            ended, error = _ended(handle, outputs)
            for output in outputs:
                self._prefix_cache.grow(key, output.generated_ids)
            if ended or error:
                del self._handles[key]
                self._prefix_cache.end(key)
            if outputs or ended or error:
                yield _produced(key, generation, outputs, ended, error)

    def _scheduler_config(self, parameters: EngineParameters) -> Any:
        config = openvino_genai.SchedulerConfig()
        config.num_kv_blocks = self.total_blocks
        config.max_num_seqs = parameters.max_batch_size
        config.max_num_batched_tokens = parameters.max_num_tokens
        config.enable_prefix_caching = parameters.reuse_cache
        config.dynamic_split_fuse = parameters.chunked_context
        return config


def _properties(parameters: EngineParameters) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if parameters.inference_num_threads:
        properties["INFERENCE_NUM_THREADS"] = parameters.inference_num_threads
    return properties


def _outputs(handle: Any) -> Iterator[Any]:
    while handle.can_read():
        yield from handle.read().values()


def _ended(handle: Any, outputs: list[Any]) -> tuple[str, RouterError | None]:
    """How it ended, if it did, or the error that a request without room in the cache (IGNORED) ends with."""
    status = handle.get_status().name
    if status == "RUNNING":
        return "", None
    if status == "FINISHED":
        return _ENDS.get(outputs[-1].finish_reason.name if outputs else "STOP", "end_id"), None
    return "", EngineFailed(f"the engine dropped the request (status {status})")


def _produced(
    key: int, generation: Generation, outputs: list[Any], ended: str, error: RouterError | None = None
) -> Produced:
    ids = [token for output in outputs for token in output.generated_ids]
    log_probs = [value for output in outputs for value in output.generated_log_probs] if generation.log_probs else []
    if ended and ids and ids[-1] in generation.end_ids:
        ids, log_probs, ended = ids[:-1], log_probs[: len(ids) - 1], "end_id"
    return Produced(key, tuple(ids), tuple(log_probs), ended, error)


def _generation_config(generation: Generation) -> Any:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = generation.max_tokens
    config.min_new_tokens = generation.min_tokens
    config.eos_token_id = min(generation.end_ids)
    config.stop_token_ids = set(generation.end_ids)
    config.logprobs = int(generation.log_probs)
    _set_sampling(config, generation.sampling)
    if generation.guide is not None:
        config.structured_output_config = structured_output(generation.guide)
    return config


def _set_sampling(config: Any, sampling: Sampling) -> None:
    config.repetition_penalty = sampling.repetition_penalty
    config.presence_penalty = sampling.presence_penalty
    config.frequency_penalty = sampling.frequency_penalty
    if sampling.is_greedy:
        return
    config.do_sample = True
    config.temperature = sampling.temperature
    config.top_p = sampling.top_p
    if sampling.top_k:
        config.top_k = sampling.top_k
    config.rng_seed = sampling.seed


def _last_line(error: Exception) -> str:
    """What OpenVINO says, without the source file that says it."""
    return str(error).strip().splitlines()[-1]
