"""The engines as the router knows them: their context, their tokenizer, and how their ids become text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bls import manifest, token_bytes
from bls.arrays import int32, strings
from bls.contract import LARGE, POSTPROCESSING, SMALL
from bls.errors import EngineUnavailable
from bls.stream_decoder import StreamDecoder, WindowDecoder

TIERS = {SMALL: "small", LARGE: "large"}


class Caller(Protocol):
    def call(self, model: str, tensors: Any, outputs: Sequence[str]) -> Any: ...


class Engines:
    """What engines/built says of each engine model. A rebuilt engine is noticed at the next request."""

    models = (SMALL, LARGE)

    def __init__(self, repository: Path, caller: Caller) -> None:
        self._repository = repository
        self._caller = caller
        self._manifests: dict[str, tuple[int, manifest.Manifest]] = {}
        self._tables: dict[str, tuple[int, token_bytes.TokenBytes]] = {}

    def tier(self, model: str) -> str:
        return TIERS[model]

    def manifest(self, model: str) -> manifest.Manifest:
        """Raises EngineUnavailable if engine.json can't be read."""
        folder = manifest.built_folder(self._repository, TIERS[model])
        try:
            written = (folder / manifest.FILE_NAME).stat().st_mtime_ns
            if model not in self._manifests or self._manifests[model][0] != written:
                self._manifests[model] = (written, manifest.load(folder))
        except (OSError, manifest.BadManifest):
            raise EngineUnavailable(f"{model} has no readable {manifest.FILE_NAME}") from None
        return self._manifests[model][1]

    def tokenized_by(self, model: str) -> str:
        """The first engine model that has the same tokenizer: its ids are this one's too."""
        digest = self.manifest(model).tokenizer.sha256
        return next(other for other in self.models if self.manifest(other).tokenizer.sha256 == digest)

    def decoder(self, model: str) -> StreamDecoder:
        """A new stream's decoder: from the byte table, or by calls where the tokenizer can't be put into one."""
        table = self._table(model)
        if table.is_supported:
            return table.decoder()
        return WindowDecoder(lambda ids: self._decode(model, ids))

    def _table(self, model: str) -> token_bytes.TokenBytes:
        built = self.manifest(model)
        path = built.token_bytes_path
        try:
            written = path.stat().st_mtime_ns
            if model not in self._tables or self._tables[model][0] != written:
                self._tables[model] = (written, token_bytes.open_table(path, built.tokenizer.sha256))
        except (OSError, ValueError):
            raise EngineUnavailable(f"{model} has no readable {path.name}") from None
        return self._tables[model][1]

    def _decode(self, model: str, ids: Sequence[int]) -> str:
        tensors = {
            "TOKENS_BATCH": np.array([[ids]], dtype=np.int32),
            "SEQUENCE_LENGTH": int32(len(ids)),
            "TIER": strings(TIERS[model]),
        }
        text = self._caller.call(POSTPROCESSING, tensors, ["OUTPUT"])["OUTPUT"].flat[0]
        return str(bytes(text).decode("utf-8"))
