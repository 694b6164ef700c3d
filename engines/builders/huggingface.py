"""A model in the form of the Hugging Face hub: config.json, weights, tokenizer; in a folder, or on the hub."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.builders.sources import BadSource, Say, Source, bring_from_hub, link_all, list_hub

CONFIG = "config.json"
# What a tokenizer's folder holds; with the two that say which ids end an answer.
TOKENIZER_FILES = (
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
_HUB = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # the first kind that there is


@dataclass(frozen=True)
class Model:
    """`text` is canonical: hf:owner/repo, or the absolute path of a folder."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Model:
        """Raises BadSource."""
        path = Path(text).expanduser()
        if (path / CONFIG).is_file():
            return cls(str(path.resolve()))
        if _HUB.fullmatch(text):
            return cls(text)
        raise BadSource(f"{text} is neither hf:owner/repo nor a folder with {CONFIG}")

    @property
    def repository(self) -> str | None:
        """On the hub; None for a folder."""
        found = _HUB.fullmatch(self.text)
        return found["repository"] if found else None

    @property
    def name(self) -> str:
        return self.text.rpartition("/")[2]

    def state(self) -> str:
        """Changes when the files of a folder do; "" for the hub."""
        return Source(self.text).state()

    def config(self, say: Say) -> Mapping[str, Any]:
        """What config.json holds. Raises BadSource."""
        with tempfile.TemporaryDirectory() as cache:
            self._bring([CONFIG], Path(cache), say)
            try:
                config = json.loads((Path(cache) / CONFIG).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise BadSource(f"{self.text}: {CONFIG}: {error}") from None
        if not isinstance(config, dict):
            raise BadSource(f"{self.text}: {CONFIG} must hold an object")
        return config

    def bring(self, folder: Path, say: Say) -> None:
        """Puts config, weights and tokenizer into the empty folder `folder`. Raises BadSource."""
        self._bring(wanted(self.text, self._names()), folder, say)

    def bring_tokenizer(self, folder: Path, say: Say) -> None:
        """Puts those of TOKENIZER_FILES that there are into the empty folder `folder`. Raises BadSource."""
        self._bring([name for name in self._names() if name in TOKENIZER_FILES], folder, say)

    def _names(self) -> list[str]:
        if self.repository:
            return list_hub(self.repository)
        return [file.name for file in Path(self.text).iterdir() if file.is_file()]

    def _bring(self, names: Sequence[str], folder: Path, say: Say) -> None:
        if self.repository:
            bring_from_hub(self.repository, names, folder, say)
            return
        for name in names:
            say(f"taking {name}")
            link_all([Path(self.text) / name], folder)


def wanted(model: str, names: Sequence[str]) -> list[str]:
    """Of a model's files those that a build needs: nothing in folders, one kind of weights. Raises BadSource."""
    flat = sorted(name for name in names if "/" not in name)
    kinds = [[name for name in flat if Path(name).match(pattern)] for pattern in _WEIGHTS]
    weights = next(filter(None, kinds), None)
    if not weights:
        raise BadSource(f"{model} has no weights: {' or '.join(_WEIGHTS)}")
    small = [name for name in flat if name in TOKENIZER_FILES or name.endswith((".json", ".py"))]
    return [*small, *weights]
