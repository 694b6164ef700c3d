"""Pipelines over the stand-in for TensorRT-LLM's LLM API (tests/llmapi_stand_in), and the models they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bls.manifest import Manifest, TokenizerFile
from engines.llmapi.pipeline import LlmApiPipeline
from engines.llmapi.settings import LlmApiParameters

STAND_IN = Path(__file__).parent / "llmapi_stand_in"
VOCAB_SIZE = 49152


def built_model(folder: Path, **fields: Any) -> Manifest:
    """engine.json and the config.json of a Hugging Face model in `folder`."""
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCAB_SIZE}))
    tokenizer = TokenizerFile("huggingface", "tokenizer.json", "a" * 64)
    described: dict[str, Any] = {"context_tokens": 4096, "end_ids": (2,), "pad_id": 2, **fields}
    built = Manifest(folder, "test", "llmapi", "config.json", vocab_size=VOCAB_SIZE, tokenizer=tokenizer, **described)
    built.save()
    return built


def llmapi_pipeline(folder: Path, **settings: Any) -> LlmApiPipeline:
    return LlmApiPipeline(built_model(folder), LlmApiParameters(in_flight=True, **settings))
