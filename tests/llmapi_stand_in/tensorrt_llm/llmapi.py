"""The names of tensorrt_llm.llmapi that engines/llmapi uses; tests/llmapi_names.toml holds them to the real ones.

A prompt's greedy continuation is its last id + 1, + 2, ... Which prompts go wrong stands in stand_in_engine.py.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from tensorrt_llm.stand_in_engine import Engine, EngineDied, Request
from tensorrt_llm.stand_in_queue import AsyncQueue, has_event_loop


class RequestError(RuntimeError):
    pass


class CapacitySchedulerPolicy(str, enum.Enum):
    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


@dataclasses.dataclass(kw_only=True)
class SchedulerConfig:
    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT


@dataclasses.dataclass(kw_only=True)
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    free_gpu_memory_fraction: float | None = 0.9
    host_cache_size: int | None = None
    dtype: str = "auto"


@dataclasses.dataclass(kw_only=True)
class CudaGraphConfig:
    max_batch_size: int = 0
    enable_padding: bool = False


@dataclasses.dataclass(kw_only=True)
class GuidedDecodingParams:
    json: Any = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False


@dataclasses.dataclass(kw_only=True)
class SamplingParams:
    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    seed: int | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: int | None = None
    guided_decoding: GuidedDecodingParams | None = None
    detokenize: bool = True


@dataclasses.dataclass(kw_only=True)
class TorchLlmArgs:
    model: Any
    skip_tokenizer_init: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    dtype: str = "auto"
    max_batch_size: int | None = None
    max_num_tokens: int | None = 8192
    max_seq_len: int | None = None
    kv_cache_config: KvCacheConfig = dataclasses.field(default_factory=KvCacheConfig)
    scheduler_config: SchedulerConfig = dataclasses.field(default_factory=SchedulerConfig)
    enable_chunked_prefill: bool = False
    cuda_graph_config: CudaGraphConfig | None = dataclasses.field(default_factory=CudaGraphConfig)
    guided_decoding_backend: str | None = None
    sampler_type: str = "auto"
    enable_iter_perf_stats: bool = False


@dataclasses.dataclass
class Logprob:
    logprob: float
    rank: int | None = None


@dataclasses.dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[Any] = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    _last_token_ids_len: int = 0
    _last_logprobs_len: int = 0

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self._last_token_ids_len :]

    @property
    def logprobs_diff(self) -> list[Any]:
        return self.logprobs[self._last_logprobs_len :]


class RequestOutput:
    """Each step of the iteration changes this one object."""

    def __init__(self, llm: LLM, request: Request) -> None:
        self._llm, self._request = llm, request
        self.outputs = [CompletionOutput(0)]
        self.finished = False

    def abort(self) -> None:
        self._llm.engine.abort(self._request)

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self.finished:
            raise StopAsyncIteration
        self._take(await self._request.responses.get())
        return self

    def _take(self, response: Any) -> None:
        if isinstance(response, EngineDied):
            self._llm.shutdown()
            raise response
        if isinstance(response, str):
            raise RequestError(response)
        completion = self.outputs[0]
        completion._last_token_ids_len = len(completion.token_ids)
        completion._last_logprobs_len = len(completion.logprobs)
        completion.token_ids += response.ids
        if self._request.params.logprobs:
            completion.logprobs += [{token: Logprob(-token / 1000, 1)} for token in response.ids]
        completion.finish_reason, completion.stop_reason = response.finish_reason, response.stop_reason
        if response.stop_reason is not None and not self._request.params.include_stop_str_in_output:
            completion.token_ids = completion.token_ids[:-1]
        self.finished = response.finish_reason is not None


class IterationResult:
    """Records in turn, until none has come for `timeout` seconds; goes on with the next request."""

    def __init__(self) -> None:
        self.records: AsyncQueue = AsyncQueue()
        self.timeout: float | None = 2.0
        self.done = False

    def __aiter__(self) -> IterationResult:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self.done:
            raise StopAsyncIteration
        record = await self.records.get(self.timeout)
        if record is None:
            self.done = True
            raise StopAsyncIteration
        return record


class _Nothing:
    def __aiter__(self) -> _Nothing:
        return self

    async def __anext__(self) -> dict[str, Any]:
        raise StopAsyncIteration


class LLM:
    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        known = {field.name for field in dataclasses.fields(TorchLlmArgs)}
        for name in kwargs:
            if name not in known:
                raise ValueError(f"LLM got invalid argument: {name}")
        if kwargs.get("guided_decoding_backend") and skip_tokenizer_init:
            raise ValueError("guided decoding needs a tokenizer")
        self.args = TorchLlmArgs(
            model=model,
            skip_tokenizer_init=skip_tokenizer_init,
            tensor_parallel_size=tensor_parallel_size,
            dtype=dtype,
            **kwargs,
        )
        self._statistics: IterationResult | None = None
        self.engine = Engine(self.args, lambda record: self._statistics and self._statistics.records.put(record))

    def generate_async(
        self,
        inputs: Any,
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
    ) -> RequestOutput:
        if self.engine.has_ended:
            raise RuntimeError("LLM is shutting down")
        assert has_event_loop(), "the asyncio event loop was not present"
        assert type(streaming) is bool and streaming
        assert type(inputs) is list and all(type(token) is int for token in inputs), "ids must be a list of int"
        params = sampling_params or SamplingParams()
        if params.end_id is None:
            raise ValueError("tokenizer is required to reset end_id if it is None")
        if not self.args.enable_chunked_prefill and len(inputs) > (self.args.max_num_tokens or 0):
            raise ValueError(f"The sum of prompt length ({len(inputs)}) should not exceed max_num_tokens")
        if self._statistics is None:
            self._statistics = IterationResult()
        self._statistics.done = False
        request = Request(inputs, params, AsyncQueue())
        self.engine.add(request)
        return RequestOutput(self, request)

    def get_stats_async(self, timeout: float | None = 2) -> Any:
        if self._statistics is None:
            return _Nothing()
        self._statistics.timeout = timeout
        return self._statistics

    def shutdown(self) -> None:
        self.engine.end()
