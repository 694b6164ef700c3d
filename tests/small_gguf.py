"""GGUF files of small models with random weights, of each family that OpenVINO reads."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from tests import small_tokenizers

WIDTH, HIDDEN, HEADS, KV_HEADS, LAYERS, CONTEXT = 64, 128, 4, 2, 2, 256
_F32, _F16 = 0, 1
_ALIGNMENT = 32


def metadata(family: str) -> dict[str, object]:
    """With the small byte-level tokenizer."""
    source = small_tokenizers.byte_level()
    model = json.loads(source.core.to_str())["model"]
    tokens = [source.core.id_to_token(token) for token in range(source.vocab_size)]
    types = [3 if token in source.special_ids else 4 if token not in model["vocab"] else 1 for token in tokens]
    return {
        "general.architecture": family,
        "general.file_type": _F16,
        f"{family}.context_length": CONTEXT,
        f"{family}.block_count": LAYERS,
        f"{family}.embedding_length": WIDTH,
        f"{family}.feed_forward_length": HIDDEN,
        f"{family}.attention.head_count": HEADS,
        f"{family}.attention.head_count_kv": KV_HEADS,
        f"{family}.attention.key_length": WIDTH // HEADS,
        f"{family}.attention.value_length": WIDTH // HEADS,
        f"{family}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{family}.rope.freq_base": 10000.0,
        f"{family}.rope.dimension_count": WIDTH // HEADS,
        f"{family}.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.padding_token_id": 0,
    }


def tensors(family: str, vocabulary: int) -> dict[str, np.ndarray]:
    """Rows by columns, as they are multiplied; vectors are float32, matrices float16."""
    chance = np.random.default_rng(7)
    kv_width = WIDTH // HEADS * KV_HEADS

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (chance.normal(size=(rows, columns)) / columns**0.5).astype(np.float16)

    found = {"token_embd.weight": matrix(vocabulary, WIDTH), "output.weight": matrix(vocabulary, WIDTH)}
    found["output_norm.weight"] = np.ones(WIDTH, np.float32)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH), ("attn_k", kv_width, WIDTH), ("attn_v", kv_width, WIDTH),
            ("attn_output", WIDTH, WIDTH), ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH),
            ("ffn_down", WIDTH, HIDDEN),
        ):  # fmt: skip
            found[f"{block}{name}.weight"] = matrix(rows, columns)
            if family == "qwen2" and name in ("attn_q", "attn_k", "attn_v"):
                found[f"{block}{name}.bias"] = chance.normal(size=rows).astype(np.float32) / 10
        found |= {f"{block}{name}.weight": np.ones(WIDTH, np.float32) for name in ("attn_norm", "ffn_norm")}
        if family == "qwen3":
            head = np.ones(WIDTH // HEADS, np.float32)
            found |= {f"{block}{name}.weight": head for name in ("attn_q_norm", "attn_k_norm")}
    return found


def write(path: Path, family: str) -> Path:
    """A whole file of version 3."""
    described = metadata(family)
    arrays = tensors(family, len(described["tokenizer.ggml.tokens"]))
    small_tokenizers.write_gguf(path, described)
    head = bytearray(path.read_bytes())
    head[8:16] = struct.pack("<Q", len(arrays))
    offset, data = 0, b""
    for name, array in arrays.items():
        encoded = name.encode()
        head += struct.pack("<Q", len(encoded)) + encoded + struct.pack("<I", array.ndim)
        head += b"".join(struct.pack("<Q", size) for size in reversed(array.shape))
        head += struct.pack("<IQ", _F16 if array.dtype == np.float16 else _F32, offset)
        data += array.tobytes() + bytes(-array.nbytes % _ALIGNMENT)
        offset = len(data)
    path.write_bytes(bytes(head) + bytes(-len(head) % _ALIGNMENT) + data)
    return path
