"""Token ids to text: what the model `postprocessing` does with one request.

It keeps no state between requests: streams are decoded in the router.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bls.arrays import Tensors, read_text
from bls.errors import BadRequest
from bls.tokens.stop_words import WordStop
from bls.tokens.tier_tokenizers import DEFAULT_TIER, TierTokenizer, tier_named


class Postprocessor:
    """`skip_special_tokens` holds for requests that don't say."""

    def __init__(self, tiers: Mapping[str, TierTokenizer], skip_special_tokens: bool = True) -> None:
        self._tiers = tiers
        self._skips_special = skip_special_tokens

    def answer(self, inputs: Tensors, requested: frozenset[str]) -> dict[str, np.ndarray[Any, Any]]:
        """OUTPUT [rows * beams], as NVIDIA's model sends it whatever its config says; OUTPUT_ROWS [rows, beams].

        Each is the text of a beam's first SEQUENCE_LENGTH ids, up to the first stop word. Raises BadRequest.
        """
        ids, lengths = inputs["TOKENS_BATCH"], inputs["SEQUENCE_LENGTH"]
        if ids.ndim != 3 or lengths.shape != ids.shape[:2]:
            raise BadRequest(f"TOKENS_BATCH is {list(ids.shape)}, SEQUENCE_LENGTH is {list(lengths.shape)}")
        texts = np.empty(ids.shape[:2], np.object_)
        for row, beam in np.ndindex(*texts.shape):
            length = int(lengths[row, beam])
            if not 0 <= length <= ids.shape[2]:
                raise BadRequest(f"SEQUENCE_LENGTH is {length}; TOKENS_BATCH holds {ids.shape[2]} ids")
            tokenizer = self._tier(inputs, row).tokenizer
            text = tokenizer.decode(ids[row, beam, :length].tolist(), self._skips(inputs, row))
            texts[row, beam] = before_first(text, self._stop_words(inputs, row)).encode()
        shapes = {"OUTPUT": texts.reshape(-1), "OUTPUT_ROWS": texts}
        return {name: array for name, array in shapes.items() if name in requested}

    def _tier(self, inputs: Tensors, row: int) -> TierTokenizer:
        return tier_named(self._tiers, read_text(_element(inputs, "TIER", row, DEFAULT_TIER), "TIER"))

    def _skips(self, inputs: Tensors, row: int) -> bool:
        return bool(_element(inputs, "SKIP_SPECIAL_TOKENS", row, self._skips_special))

    def _stop_words(self, inputs: Tensors, row: int) -> list[str]:
        if "STOP_WORDS_DICT" not in inputs:
            return []
        words = inputs["STOP_WORDS_DICT"]
        return [read_text(word, "STOP_WORDS_DICT") for word in words.reshape(len(words), -1)[row]]


def before_first(text: str, words: Sequence[str]) -> str:
    """The text before the word that ends first, as in a stream; all of it where there is none."""
    stop = WordStop(words)
    return stop.push(text) + stop.finish()


def _element(inputs: Tensors, name: str, row: int, default: Any) -> Any:
    return inputs[name].reshape(-1)[row] if name in inputs else default
