"""What is asked for: a model of Triton, its engine and the requests expected of it, and the GPUs it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

from engines.gpu_memory import sizes
from engines.gpu_memory.shape import Shape
from engines.gpu_memory.sizes import Parts
from engines.tensorrt_llm.spec import TOKENS_PER_BLOCK, GpuSpec
from engines.tensorrt_llm.suitability import Capability, unsuited


class BadPlacement(ValueError):
    """What is asked for makes no sense, whatever the memory; the message is one line that names the field."""


@dataclass(frozen=True)
class Gpu:
    """`memory` is what CUDA reports in bytes, less than the name on the box says."""

    name: str
    memory: int
    capability: Capability = (9, 0)


@dataclass(frozen=True)
class EnginePlacement:
    """One model of Triton. `engine` is the tier whose engine it loads; several models may load the same.

    `quantisation` is of the weights: the spec's, or that of a checkpoint that is quantised already. `concurrent`
    requests are shared out over all instances. `gpus` holds the GPUs of each instance, as many as it has ranks.
    """

    model: str
    engine: str
    shape: Shape
    spec: GpuSpec
    quantisation: str
    runtime: str
    input_tokens: int
    output_tokens: int
    concurrent: int
    gpus: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        longest = self.spec.max_seq_len
        if self.input_tokens > self.spec.longest_input:
            raise BadPlacement(f"input is {self.input_tokens} tokens; max_input_len is {self.spec.longest_input}")
        if self.input_tokens + self.output_tokens > longest:
            raise BadPlacement(
                f"input and output are {self.input_tokens + self.output_tokens} tokens; max_seq_len is {longest}"
            )
        if self.each_concurrent > self.spec.max_batch_size:
            text = f"concurrent is {self.each_concurrent} for each instance"
            raise BadPlacement(
                f"{text}; max_batch_size is {self.spec.max_batch_size}: further requests would wait in the queue"
            )
        found = unsuited(self.spec, self.shape.dimensions)
        if found:
            raise BadPlacement(found)
        if self.runtime == sizes.LLMAPI and len(self.gpus) > 1:
            raise BadPlacement(f"instances is {len(self.gpus)}; by the LLM API a model here has one")
        for instance in self.gpus:
            if len(set(instance)) != len(instance) or len(instance) != self.spec.world_size:
                given = ",".join(map(str, instance))
                raise BadPlacement(f"gpus of an instance are {given}; it needs {self.spec.world_size} different ones")

    @property
    def each_concurrent(self) -> int:
        return ceil(self.concurrent / len(self.gpus))

    @property
    def tokens_per_request(self) -> int:
        """Tokens of KV cache that a request of the given lengths holds, in whole blocks."""
        return _in_blocks(self.input_tokens + self.output_tokens)

    @property
    def needed_tokens(self) -> int:
        """Of one instance: for its share of the concurrent requests, and for one request as long as any may be."""
        return max(self.each_concurrent * self.tokens_per_request, _in_blocks(self.spec.max_seq_len))

    @cached_property
    def parts(self) -> Parts:
        spec = self.spec
        return Parts(
            weights=sizes.weights(self.shape, self.quantisation, spec.tp_size, spec.pp_size, self.runtime),
            activations=sizes.activations(self.shape, spec.max_num_tokens, spec.tp_size),
            buffers=sizes.buffers(self.shape.vocab, spec.max_batch_size, spec.max_seq_len),
            all_reduce=sizes.all_reduce(spec.tp_size, self.runtime),
            process=sizes.process(self.runtime, spec.max_batch_size),
        )

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Of one rank."""
        element_bytes = 1 if self.spec.kv_cache_dtype == "fp8" else 2
        return sizes.kv_bytes_per_token(self.shape, element_bytes, self.spec.tp_size, self.spec.pp_size)

    @property
    def is_fp8(self) -> bool:
        return "fp8" in (self.quantisation, self.spec.kv_cache_dtype)

    @property
    def is_integer(self) -> bool:
        """Whether an engine is to have integer weights."""
        return self.runtime == sizes.TENSORRT and self.quantisation.startswith("int")

    @property
    def used_gpus(self) -> list[int]:
        return sorted({gpu for instance in self.gpus for gpu in instance})

    def ranks_on(self, gpu: int) -> int:
        return sum(instance.count(gpu) for instance in self.gpus)


def _in_blocks(tokens: int) -> int:
    return ceil(tokens / TOKENS_PER_BLOCK) * TOKENS_PER_BLOCK
