"""Parameters that articles print and no engine reads; TensorRT-LLM's backend ignores them without a word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from engines.worker.parameters import ELSEWHERE
from scripts.host.preflight import Refused
from scripts.server import model_folders

_KEY = re.compile(r'\bkey\s*:\s*"([^"]*)"')


def check(repository: Path, models: Iterable[str], config_name: str | None) -> None:
    """Refuses the first one, with where it is set."""
    for model in models:
        text = model_folders.config(repository / model, config_name)
        if model_folders.backend(text) not in ("tensorrtllm", "python"):
            continue
        for key in _KEY.findall(text.partition("parameters")[2]):
            if key in ELSEWHERE and model.startswith(("tensorrt_llm", "llama_7b")):
                file = model_folders.config_file(repository / model, config_name)
                raise Refused(f"{file}: there is no parameter {key}: {ELSEWHERE[key]}")
