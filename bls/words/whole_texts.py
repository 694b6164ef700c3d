"""Whole texts through the sensitive-word filter: what the model `sensitive_words` does with one request."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bls.arrays import Array, read_text
from bls.words.stream_filter import filter_text
from bls.words.table import NewestTable


class TextFilter:
    """Each request goes by the lists that are newest when it comes; without any, texts go out as they are."""

    def __init__(self, words: NewestTable | None) -> None:
        self._words = words

    def answer(self, inputs: Mapping[str, Array], requested: frozenset[str]) -> dict[str, Array]:
        """`filtered_text`, one text after the other as NVIDIA's ensemble sends them: [all]. Raises BadRequest."""
        given = inputs["text"]
        filtered = np.empty(given.shape, np.object_)
        table = self._words.table() if self._words else None
        for place, value in np.ndenumerate(given):
            text = read_text(value, "text")
            filtered[place] = (filter_text(table, text)[0] if table else text).encode()
        return {"filtered_text": filtered.reshape(-1)} if "filtered_text" in requested else {}
