"""Text to the classifier's token ids: what the model `text_tokenizer` does with one request of one or more rows.

The classifier reads at most `max_tokens` tokens: of a longer text the beginning, and `truncated` says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import numpy as np

from bls.arrays import Array, read_text
from engines.classifier.manifest import TextManifest

# Otherwise each process keeps a thread per core for batches of texts, and here a batch is one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers

# More than 256 tokens of any language's prose, so that a text of megabytes costs no more than one of a page.
_READ_CHARACTERS = 8192
_WHITE_SPACE = re.compile("[ \t\n\r\xa0\u2000-\u200a\u3000]+")  # no control characters: the tokenizer drops those


class TextTokenizer:
    """Each row is padded to the longest of its request, and that to `pad_to_multiple_of`."""

    def __init__(self, manifest: TextManifest, pad_to_multiple_of: int = 1) -> None:
        if pad_to_multiple_of < 1:
            raise ValueError(f"parameter pad_to_multiple_of is {pad_to_multiple_of}; it must be at least 1")
        self._manifest = manifest
        self._multiple = pad_to_multiple_of
        self._core = tokenizers.Tokenizer.from_file(str(manifest.tokenizer_path))
        self._core.no_padding()
        self._core.no_truncation()

    def answer(self, inputs: Mapping[str, Array], requested: frozenset[str]) -> dict[str, Array]:
        """The requested ones of TEXT_TOKENIZER_CONTRACT's outputs. Raises BadRequest for what isn't UTF-8."""
        rows = [self.encode(read_text(value, "text")) for value in inputs["text"].reshape(-1)]
        longest = max(len(ids) for ids, _ in rows)
        width = min(-(-longest // self._multiple) * self._multiple, self._manifest.max_tokens)
        ids = np.full((len(rows), width), self._manifest.pad_id, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for place, (row, _) in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        outputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "truncated": np.array([[truncated] for _, truncated in rows]),
            "unknown_share": np.array([[self._unknown_share(row)] for row, _ in rows], np.float32),
        }
        return {name: array for name, array in outputs.items() if name in requested}

    def encode(self, text: str) -> tuple[list[int], bool]:
        """At most `max_tokens` ids, [CLS] and [SEP] among them, and whether there would be more."""
        # White space first: the tokenizer reads a run of it like one, and a text could hide behind a page of it.
        begin = _WHITE_SPACE.sub(" ", text[: 8 * _READ_CHARACTERS]).strip(" ")
        ids: list[int] = self._core.encode_batch_fast([begin[:_READ_CHARACTERS]])[0].ids
        left_out = len(begin) > _READ_CHARACTERS or len(text) > 8 * _READ_CHARACTERS
        if len(ids) <= self._manifest.max_tokens:
            return ids, left_out
        return [*ids[: self._manifest.max_tokens - 1], ids[-1]], True

    def _unknown_share(self, ids: list[int]) -> float:
        words = ids[1:-1]
        return words.count(self._manifest.unknown_id) / len(words) if words else 0.0
