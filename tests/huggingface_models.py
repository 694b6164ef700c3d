"""Small models in the form of the Hugging Face hub: configs like real ones, a small tokenizer, weights of no use."""

from __future__ import annotations

import json
from pathlib import Path

from tests import small_tokenizers

QWEN = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "max_position_embeddings": 32768,
    "vocab_size": 1024,
    "bos_token_id": 1,
    "eos_token_id": 7,
}
LLAMA = QWEN | {
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
}
TEMPLATE = "{% for message in messages %}{{ message.content }}<|end|>{% endfor %}"


def write(folder: Path, config: dict[str, object] = QWEN, tokenizer: str = "byte_level", **generation: object) -> Path:
    """`tokenizer` is "byte_level", "sentencepiece" or "" for none; `generation` is generation_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    if generation:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    if tokenizer == "byte_level":
        (folder / "tokenizer.json").write_text(small_tokenizers.byte_level().core.to_str())
        names = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": TEMPLATE}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
    elif tokenizer == "sentencepiece":
        (folder / "tokenizer.model").write_bytes(small_tokenizers.sentencepiece_model())
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder
