"""What NVIDIA's tensorrt_llm_bls sends to the engine behind it, whatever its client has asked for.

After lib/triton_decoder.py of tensorrtllm_backend c2e65b8, and releases that send decoder_input_lengths too:
everything that its preprocessing gives, and of its client's inputs those that clients of it send without options.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def sent_by_the_bls(*prompt: int, max_tokens: int = 4, streaming: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors by name, as they are on the wire."""
    return {
        "input_ids": np.array([prompt], np.int32),
        "decoder_input_ids": np.array([[2]], np.int32),
        "input_lengths": np.array([[len(prompt)]], np.int32),
        "decoder_input_lengths": np.array([[1]], np.int32),
        "bad_words_list": np.array([[[0], [-1]]], np.int32),
        "stop_words_list": np.array([[[0], [-1]]], np.int32),
        "embedding_bias": np.zeros((1, 0), np.float32),
        "pad_id": np.array([[2]], np.int32),
        "end_id": np.array([[2]], np.int32),
        "prompt_table_extra_ids": np.zeros((1, len(prompt)), np.uint64),
        "beam_width": np.array([[1]], np.int32),
        "num_return_sequences": np.array([[1]], np.int32),
        "runtime_top_k": np.array([[1]], np.int32),
        "runtime_top_p": np.array([[1.0]], np.float32),
        "temperature": np.array([[1.0]], np.float32),
        "len_penalty": np.array([[1.5]], np.float32),
        "repetition_penalty": np.array([[1.0]], np.float32),
        "min_tokens": np.array([[1]], np.int32),
        "presence_penalty": np.array([[0.0]], np.float32),
        "frequency_penalty": np.array([[0.0]], np.float32),
        "seed": np.array([[7]], np.uint64),
        "return_log_probs": np.array([[False]]),
        "streaming": np.array([[streaming]]),
        "prompt_vocab_size": np.array([[0]], np.int32),
        "exclude_input_in_output": np.array([[True]]),
        "return_perf_metrics": np.array([[False]]),
        "request_output_len": np.array([[max_tokens]], np.int32),
        "return_context_logits": np.array([[False]]),
        "return_generation_logits": np.array([[False]]),
    }
