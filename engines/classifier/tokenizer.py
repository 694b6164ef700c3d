"""Text to the classifier's token ids: what the model `text_tokenizer` does with one request of one or more rows.

A long text becomes windows one after the other, each with the tokens that every text begins and ends with. Of a text
that needs more than `max_windows`, the first and the last half of them are read, and `truncated` says so.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping

import numpy as np

from bls.arrays import Array, read_text
from engines.classifier.manifest import TextManifest

SENTENCEPIECE = ".model"  # the tokenizer's file ends so; any other is one of Hugging Face's library

OVERLAP = 16  # tokens that two windows share, so that no short sentence is cut in both
# More than the windows of any language's prose, so that a text of megabytes costs no more than one of some pages.
_READ_CHARACTERS = 8192
_WHITE_SPACE = re.compile("[ \t\n\r\xa0\u2000-\u200a\u3000]+")  # no control characters: the tokenizers drop those

Ids = Callable[[str], list[int]]


class TextTokenizer:
    """Each row is padded to the longest of its request, and that to `pad_to_multiple_of`."""

    def __init__(self, manifest: TextManifest, pad_to_multiple_of: int = 1) -> None:
        if pad_to_multiple_of < 1:
            raise ValueError(f"parameter pad_to_multiple_of is {pad_to_multiple_of}; it must be at least 1")
        self._manifest = manifest
        self._multiple = pad_to_multiple_of
        self._ids = _core(manifest)
        self._room = manifest.max_tokens - len(manifest.begin_ids) - 1  # of a window, for the text itself

    def answer(self, inputs: Mapping[str, Array], requested: frozenset[str]) -> dict[str, Array]:
        """The requested ones of TEXT_TOKENIZER_CONTRACT's outputs. Raises BadRequest for what isn't UTF-8."""
        rows = [self.encode(read_text(value, "text")) for value in inputs["text"].reshape(-1)]
        width = -(-max(len(ids) for ids, _ in rows) // self._multiple) * self._multiple
        ids = np.full((len(rows), width), self._manifest.pad_id, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for place, (row, _) in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        outputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "truncated": np.array([[truncated] for _, truncated in rows]),
            "unknown_share": np.array([[self.unknown_share(row)] for row, _ in rows], np.float32),
        }
        return {name: array for name, array in outputs.items() if name in requested}

    def encode(self, text: str) -> tuple[list[int], bool]:
        """The ids of all windows, one after the other, and whether something of the text is in none of them."""
        begin, end, left_out = _read(text)
        ids = self._ids(begin)
        if end:
            ids += self._ids(end)
        windows = self._windows(ids)
        half = self._manifest.max_windows // 2
        if len(windows) > self._manifest.max_windows:
            left_out = True
            tail = ids[-(half * (self._room - OVERLAP) + OVERLAP) :] if half else []
            windows = windows[: self._manifest.max_windows - half] + self._windows(tail)[:half]
        return [number for window in windows for number in window], left_out

    def _windows(self, ids: list[int]) -> list[list[int]]:
        begins = range(0, max(len(ids) - OVERLAP, 1), self._room - OVERLAP)
        begin_ids, end_id = self._manifest.begin_ids, self._manifest.end_id
        return [[*begin_ids, *ids[begin : begin + self._room], end_id] for begin in begins]

    def unknown_share(self, ids: list[int]) -> float:
        """Of the text's own ids the share that stands for what has no token."""
        around = {*self._manifest.begin_ids, self._manifest.end_id}
        words = [number for number in ids if number not in around]
        return words.count(self._manifest.unknown_id) / len(words) if words else 0.0


def _read(text: str) -> tuple[str, str, bool]:
    """Where a text begins, where it ends if it is too long to be read as a whole, and whether anything is left out."""
    # White space first: the tokenizer reads a run of it like one, and a text could hide behind a page of it.
    if len(text) <= 16 * _READ_CHARACTERS:
        text = _squeezed(text)
        if len(text) <= _READ_CHARACTERS:
            return text, "", False
        begin, end = text, text
    else:
        begin, end = _squeezed(text[: 8 * _READ_CHARACTERS]), _squeezed(text[-8 * _READ_CHARACTERS :])
    return begin[: _READ_CHARACTERS // 2], end[-_READ_CHARACTERS // 2 :], True


def _squeezed(text: str) -> str:
    return _WHITE_SPACE.sub(" ", text).strip(" ")


def _core(manifest: TextManifest) -> Ids:
    """The ids of a text, without those around each window. Each library is loaded only where it is needed."""
    file = str(manifest.tokenizer_path)
    if file.endswith(SENTENCEPIECE):
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor(model_file=file)
        ctypes.CDLL(None).malloc_trim(0)  # 20 of the 55 MB that a process with 250,000 pieces would take
        encode: Ids = pieces.encode
        return encode
    # Otherwise each process keeps a thread per core for batches of texts, and here a batch is one.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers

    core = tokenizers.Tokenizer.from_file(file)
    core.no_padding()
    core.no_truncation()
    return lambda text: list(core.encode_batch_fast([text], add_special_tokens=False)[0].ids)
