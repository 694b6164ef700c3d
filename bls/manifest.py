"""engine.json: what is in a folder of engines/built, so that no process has to open the weights to know.

Written by scripts/build_engines, read by the engine, the tokenizer models and the router.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bls import template_values
from bls.paths import home

FILE_NAME = "engine.json"
TABLE_FILE_NAME = "token_bytes.bin"
TOKENIZER_KINDS = ("gguf", "huggingface", "sentencepiece")


class BadManifest(ValueError):
    """engine.json is missing, unreadable or holds a wrong value; the message names the file and the field."""


@dataclass(frozen=True)
class TokenizerFile:
    """`kind` is one of TOKENIZER_KINDS; `path` is relative to engine.json; equal `sha256` means the same tokenizer."""

    kind: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One built engine. `context_tokens` counts prompt and output together; `end_ids` holds at least one id."""

    folder: Path
    name: str
    builder: str
    weights: str
    context_tokens: int
    vocab_size: int
    end_ids: tuple[int, ...]
    pad_id: int
    tokenizer: TokenizerFile
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # what requests that don't say tell it

    def __post_init__(self) -> None:
        if self.context_tokens < 1 or self.vocab_size < 1:
            raise BadManifest(f"{self.file}: context_tokens and vocab_size must be at least 1")
        if not self.end_ids or not all(0 <= token < self.vocab_size for token in self.end_ids):
            raise BadManifest(f"{self.file}: end_ids must be one or more ids below {self.vocab_size}")
        if self.tokenizer.kind not in TOKENIZER_KINDS:
            raise BadManifest(f"{self.file}: tokenizer.kind is {self.tokenizer.kind!r}; known: {TOKENIZER_KINDS}")
        if problem := template_values.problem_of(self.chat_template_kwargs):
            raise BadManifest(f"{self.file}: chat_template_kwargs {problem}")

    @property
    def file(self) -> Path:
        return self.folder / FILE_NAME

    @property
    def weights_path(self) -> Path:
        return self.folder / self.weights

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / self.tokenizer.path

    @property
    def token_bytes_path(self) -> Path:
        """The tokenizer's byte table, see `bls.tokens.byte_table`."""
        return self.folder / TABLE_FILE_NAME

    @property
    def command(self) -> str:
        """What builds it again, for a message."""
        return build_command(self.folder)

    def telling(self, values: Mapping[str, Any]) -> Manifest:
        """The same with these chat_template_kwargs, in the file too."""
        if dict(values) == dict(self.chat_template_kwargs):
            return self
        told = replace(self, chat_template_kwargs=dict(values))
        told.save()
        return told

    def save(self) -> None:
        """Replaces engine.json at once, so that a reader never sees half of it."""
        fields = asdict(self)
        del fields["folder"]
        draft = self.folder / f".{FILE_NAME}.{os.getpid()}"
        draft.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.file)


def build_command(folder: Path) -> str:
    """The command that makes a tier's folder, for a message."""
    return f"`python -m scripts.build_engines {folder.name}`"


def load(folder: Path) -> Manifest:
    """Reads folder/engine.json. Raises BadManifest."""
    file = folder / FILE_NAME
    try:
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        fields["tokenizer"] = TokenizerFile(**fields["tokenizer"])
        fields["end_ids"] = tuple(fields["end_ids"])
        return Manifest(folder=folder, **fields)
    except FileNotFoundError:
        raise BadManifest(f"{file} is missing: run {build_command(folder)}") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        # What BadManifest says names the file already.
        reason = error if isinstance(error, BadManifest) else f"{file}: {error}"
        raise BadManifest(f"{reason}; build it again: {build_command(folder)}") from None


def built_folder(model_repository: Path, tier: str) -> Path:
    """Where the engine of a tier ("small", "large") lies, seen from the model repository."""
    return home(model_repository) / "engines" / "built" / tier
