"""The engines as the router knows them: their context, their tokenizer, and how their ids become text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from bls import manifest
from bls.arrays import int32, strings
from bls.contract import POSTPROCESSING
from bls.errors import EngineUnavailable
from bls.manifest import TABLE_FILE_NAME
from bls.ports import Caller
from bls.tiers import engine_models, tier_of
from bls.tokens import byte_table
from bls.tokens.stream_decoder import StreamDecoder, WindowDecoder

T = TypeVar("T")


class EngineFiles:
    """What engines/built said of each engine model when it was first asked: a rebuilt engine needs a restart anyway.

    `models` are the engine models of the repository.
    """

    def __init__(self, repository: Path, caller: Caller) -> None:
        self._caller = caller
        self.models = engine_models(repository)
        folders = {model: manifest.built_folder(repository, tier_of(model)) for model in self.models}
        self._manifests = {
            model: _Once(folder / manifest.FILE_NAME, lambda path: manifest.load(path.parent))
            for model, folder in folders.items()
        }
        self._tables = {
            model: _Once(folder / TABLE_FILE_NAME, byte_table.open_table) for model, folder in folders.items()
        }

    def manifest(self, model: str) -> manifest.Manifest:
        """Raises EngineUnavailable if engine.json can't be read."""
        return self._manifests[model].get(model)

    def tokenized_by(self, model: str) -> str:
        """The first engine model that has the same tokenizer: its ids are this one's too."""
        digest = self.manifest(model).tokenizer.sha256
        return next(other for other in self.models if self.manifest(other).tokenizer.sha256 == digest)

    def decoder(self, model: str) -> StreamDecoder:
        """A new stream's decoder: from the byte table, or by calls where the tokenizer can't be put into one."""
        table = self._tables[model].get(model)
        if table.header.sha256 != self.manifest(model).tokenizer.sha256:
            raise EngineUnavailable(
                f"the {TABLE_FILE_NAME} of {model} belongs to another tokenizer: reload preprocessing"
            )
        if table.is_supported:
            return table.decoder()
        return WindowDecoder(lambda ids: self._decode(model, ids))

    def _decode(self, model: str, ids: Sequence[int]) -> str:
        tensors = {
            "TOKENS_BATCH": np.array([[ids]], dtype=np.int32),
            "SEQUENCE_LENGTH": int32(len(ids)),
            "TIER": strings(tier_of(model)),
        }
        text = self._caller.call(POSTPROCESSING, tensors, ["OUTPUT"])["OUTPUT"].flat[0]
        return str(bytes(text).decode("utf-8"))


class _Once(Generic[T]):
    """A file as `load` read it first; read again only where that failed."""

    def __init__(self, path: Path, load: Callable[[Path], T]) -> None:
        self._path = path
        self._load = load
        self._loaded: T | None = None

    def get(self, model: str) -> T:
        if self._loaded is None:
            try:
                self._loaded = self._load(self._path)
            except (OSError, ValueError):
                raise EngineUnavailable(f"{model} has no readable {self._path.name}") from None
        return self._loaded
