"""Bytes of one rank (one GPU of an engine), each part by itself. All sizes are whole bytes; GiB are 2**30 of them.

Weights and KV cache follow from shapes; an engine file is 1 or 2 % larger than its weights. Activations and buffers are
bounds, fitted from above to what logs of TensorRT-LLM print ("[MemUsageChange] Allocated ... for execution context
memory"): its document on memory usage, and the issues 1188, 2683 and 3636 of NVIDIA/TensorRT-LLM. None of it was
measured here. Layers that look back only so far (sliding windows of Mistral and Gemma) are counted in full, which is a
bound too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import pairwise
from math import ceil

from engines.gpu_memory.shape import Layer, Shape

GIB = 2**30
TENSORRT, LLMAPI = "tensorrt_llm", "llmapi"  # a built engine in the C++ backend; the LLM API, on PyTorch
RUNTIMES = (TENSORRT, LLMAPI)

# Bits of a quantised parameter with its scales, in blocks of 128 (nvfp4: 16) parameters. One scale a column
# (int8_weight_only, int4_weight_only) or a matrix (fp8) is too little to count.
WEIGHT_BITS = {
    "none": Fraction(16),
    "fp8": Fraction(8),
    "int8_weight_only": Fraction(8),
    "int4_weight_only": Fraction(4),
    "int4_awq": 4 + Fraction(16, 128),
    "int4_gptq": 4 + Fraction(16 + 4, 128),  # a 4-bit zero point too
    "w4a8_awq": 4 + Fraction(16, 128),
    "int8_sq": Fraction(8),
    "nvfp4": 4 + Fraction(8, 16),
}

_PLAIN_BYTES = 2  # of what isn't quantised: norms, biases, routers, embedding and output matrix
_PROCESS = GIB  # CUDA's context, libraries, NCCL: the document's log leaves 0.76 GiB unexplained
_CUDA_GRAPH = 200_000_000  # "up to 200 MB", says the LLM API of each; ours are for 1, 2, 4 and each 8 requests more
_LLMAPI_ALL_REDUCE = 64 * 2**20  # CustomAllReduceHelper's default size, PyTorch backend


@dataclass(frozen=True)
class Parts:
    """What one rank takes before its KV cache, in bytes."""

    weights: int
    activations: int
    buffers: int
    all_reduce: int
    process: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


def weights(shape: Shape, quantisation: str, tp: int, pp: int, runtime: str) -> int:
    """Bytes of the heaviest rank. The embedding is whole on each rank of the first stage, the output matrix divided.

    An engine stores both even where the model ties them; the LLM API stores them once, unless they are on two stages.
    """
    return max(
        sum(_layer(shape, layer, quantisation, tp) for layer in stage) + _PLAIN_BYTES * ends
        for stage, ends in zip(stages(shape, pp), _ends(shape, tp, pp, runtime), strict=True)
    )


def stages(shape: Shape, pp: int) -> list[tuple[Layer, ...]]:
    """The layers of each pipeline stage; the first ones have one more if they can't be equal (Mapping.pp_layers)."""
    each, more = divmod(len(shape.layers), pp)
    starts = [stage * each + min(stage, more) for stage in range(pp + 1)]
    return [shape.layers[start:end] for start, end in pairwise(starts)]


def _layer(shape: Shape, layer: Layer, quantisation: str, tp: int) -> int:
    matrices = ceil(layer.heads / tp) + ceil(layer.key_value / min(tp, shape.kv_heads))
    matrices += ceil(layer.feed_forward / tp) + layer.shared
    return ceil(matrices * WEIGHT_BITS[quantisation] / 8) + _PLAIN_BYTES * layer.plain


def _ends(shape: Shape, tp: int, pp: int, runtime: str) -> list[int]:
    """Parameters of each stage outside its layers."""
    ends = [0] * pp
    ends[0] += shape.embedding
    ends[-1] += shape.final_norm
    if not (shape.tied and runtime == LLMAPI and pp == 1):
        ends[-1] += ceil(shape.embedding / tp)
    return ends


def kv_bytes_per_token(shape: Shape, element_bytes: int, tp: int, pp: int) -> int:
    """Bytes that one token of context holds in the KV cache of one rank; `element_bytes` is 2, or 1 for fp8 and int8.

    As tensorrt_llm/bench/build/tuning.py counts. A rank has at least one key-value head; MLA's vector is on every rank.
    """
    layers = ceil(len(shape.layers) / pp)
    if shape.latent is not None:
        return layers * shape.latent * element_bytes
    return 2 * layers * ceil(shape.kv_heads / tp) * shape.head_dim * element_bytes


def kv_blocks(bytes_free: int, bytes_per_token: int, tokens_per_block: int) -> int:
    """How many blocks of the paged KV cache `bytes_free` hold; a part of a block is none."""
    return bytes_free // (bytes_per_token * tokens_per_block)


def activations(shape: Shape, max_num_tokens: int, tp: int) -> int:
    """Bytes of one layer's intermediate results for `max_num_tokens` tokens; the layers use them in turn.

    9 feed-forward and 6.5 model widths of two bytes a token: 0 to 5 % above the logs of Llama-3.1-8B at 128,000 tokens
    (37,812.51 MiB), Qwen2.5-0.5B at 8,192 (773.51 MiB) and, if it is Llama-2-7B on two GPUs at 8,192, the document's
    (1,134.01 MiB). A mixture copies a token to each of its experts, and back: 26 % above DeepSeek-V3 on 8 GPUs in issue
    2683 (2,265.58 MiB), if that was built for 8,192.
    """
    width = max(shape.hidden, ceil(shape.attention_width / tp))
    copies = 2 * 2 * shape.active_experts * shape.hidden
    return max_num_tokens * (2 * 9 * ceil(shape.active_width / tp) + 13 * width + copies)


def buffers(vocab: int, max_batch_size: int, max_seq_len: int) -> int:
    """Bytes of runtime and decoder buffers: 7 arrays of 4-byte logits, and 2 of 4-byte token ids.

    2 % above issue 1188: 8.42 GiB for 2,048 requests, a vocabulary of 151,936 and 32,768 tokens.
    """
    return max_batch_size * (7 * 4 * vocab + 2 * 4 * max_seq_len)


def all_reduce(tp: int, runtime: str) -> int:
    """Bytes of the buffers in which ranks add up their results: five of `tp` pieces (tensorrt_llm/plugin/plugin.py)."""
    if tp == 1:
        return 0
    engine = 5 * tp * (16_000_000 if tp == 2 else 8_000_000)
    return engine if runtime == TENSORRT else engine + 4 * tp * _LLMAPI_ALL_REDUCE


def process(runtime: str, max_batch_size: int) -> int:
    """Bytes that a process takes on a GPU for itself, with the LLM API's CUDA graphs."""
    return _PROCESS if runtime == TENSORRT else _PROCESS + _CUDA_GRAPH * (3 + ceil(max_batch_size / 8))
