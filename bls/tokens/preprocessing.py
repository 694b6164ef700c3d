"""Text to token ids: what the model `preprocessing` does with one request of one or more rows.

Shapes follow NVIDIA's preprocessing model (tensorrtllm_backend c2e65b8): each row's ids are padded to the longest row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bls import template_values
from bls.arrays import Array, Tensors, read_text
from bls.errors import BadRequest
from bls.tokens import byte_table_build
from bls.tokens.chat_template import Chat
from bls.tokens.messages import read_conversation
from bls.tokens.tier_tokenizers import DEFAULT_TIER, TierTokenizer, tier_named
from bls.tokens.tokenizer import Tokenizer

Words = list[list[int]]


def ensure_tables(tiers: Mapping[str, TierTokenizer]) -> None:
    """Builds the byte tables that the router reads, where they are missing or stale."""
    for name, tier in tiers.items():
        table = byte_table_build.ensure(tier.manifest, tier.tokenizer)
        if not table.is_supported:
            logging.warning("%s: no byte table, so postprocessing decodes its streams: %s", name, table.header.reason)


class Preprocessor:
    """A prompt of more than `max_characters_per_token` characters for each token of the largest context is refused
    before it is encoded: it fits no engine, and would hold a tokenizer for seconds. `default_output_len` holds for
    requests without REQUEST_OUTPUT_LEN."""

    def __init__(
        self,
        tiers: Mapping[str, TierTokenizer],
        add_special_tokens: bool = True,
        max_characters_per_token: int = 32,
        default_output_len: int = 128,
    ) -> None:
        self.default_output_len = default_output_len
        self._tiers = tiers
        self._chats = {name: Chat(tier.tokenizer) for name, tier in tiers.items()}
        self._adds_special = add_special_tokens
        largest_context = max(tier.manifest.context_tokens for tier in tiers.values())
        self._max_characters = max_characters_per_token * largest_context

    def answer(self, inputs: Tensors, requested: frozenset[str]) -> dict[str, Array]:
        """The requested ones of PREPROCESSING_CONTRACT's outputs. Raises BadRequest."""
        call = _Call(self, inputs)
        return {name: array for name in requested if (array := _OUTPUTS[name](call)) is not None}

    def tier(self, name: str) -> TierTokenizer:
        return tier_named(self._tiers, name)

    def chat(self, tier: str) -> Chat:
        return self._chats[tier]

    def prompt_ids(self, tokenizer: Tokenizer, text: str) -> list[int]:
        return tokenizer.encode(text, self._adds_special)

    def text(self, inputs: Tensors, name: str, row: int) -> str:
        text = read_text(inputs[name].reshape(len(inputs[name]), -1)[row][0], name)
        if len(text) > self._max_characters:
            raise BadRequest(f"{name} has {len(text)} characters; at most {self._max_characters} are taken")
        return text


class _Call:
    """One request: its rows' ids are made once, for whichever outputs need them."""

    def __init__(self, preprocessor: Preprocessor, inputs: Tensors) -> None:
        self._preprocessor = preprocessor
        self.inputs = inputs
        reference = "REQUEST_OUTPUT_LEN" if "REQUEST_OUTPUT_LEN" in inputs else next(iter(inputs))
        self.rows = len(inputs[reference])
        for name, array in inputs.items():
            if len(array) != self.rows:
                raise BadRequest(f"{name} has {len(array)} rows, {reference} has {self.rows}")
        names = {self._text_or("TIER", row, DEFAULT_TIER) for row in range(self.rows)}
        if len(names) != 1:
            raise BadRequest("TIER must be the same in all rows of a request")
        (self._tier_name,) = names
        self.tier = preprocessor.tier(self._tier_name)
        self._prompts: list[list[int]] | None = None

    def _text_or(self, name: str, row: int, default: str) -> str:
        return self._preprocessor.text(self.inputs, name, row) if name in self.inputs else default

    def prompts(self) -> list[list[int]]:
        if self._prompts is None:
            self._prompts = [self._prompt(row) for row in range(self.rows)]
        return self._prompts

    def _prompt(self, row: int) -> list[int]:
        if ("QUERY" in self.inputs) == ("MESSAGES" in self.inputs):
            raise BadRequest("give either QUERY or MESSAGES")
        chat = self._preprocessor.chat(self._tier_name)
        if "MESSAGES" in self.inputs:
            read = read_conversation(self._preprocessor.text(self.inputs, "MESSAGES", row))
            return chat.encode(read.messages, self._template_values(row), read.places)
        text = self._preprocessor.text(self.inputs, "QUERY", row)
        if self._flag("APPLY_CHAT_TEMPLATE", row):
            return chat.encode([{"role": "user", "content": text}], self._template_values(row))
        return self._preprocessor.prompt_ids(self.tier.tokenizer, text)

    def _template_values(self, row: int) -> dict[str, Any]:
        """Those of engines/specs.toml, and the request's before them."""
        given = template_values.read(self._text_or("CHAT_TEMPLATE_KWARGS", row, "{}"))
        return {**self.tier.manifest.chat_template_kwargs, **given}

    def _flag(self, name: str, row: int) -> bool:
        return name in self.inputs and bool(self.inputs[name].reshape(self.rows, -1)[row][0])

    def decoder_prompts(self) -> list[list[int]]:
        if "DECODER_QUERY" not in self.inputs:
            return [[int(pad)] for pad in self.pad_ids()[:, 0]]
        texts = [self._preprocessor.text(self.inputs, "DECODER_QUERY", row) for row in range(self.rows)]
        return [self._preprocessor.prompt_ids(self.tier.tokenizer, text) for text in texts]

    def pad_ids(self) -> Array:
        return self._given_or("PAD_ID", self.tier.manifest.pad_id)

    def end_ids(self) -> Array:
        return self._given_or("END_ID", self.tier.manifest.end_ids[0])

    def output_lengths(self) -> Array:
        return self._given_or("REQUEST_OUTPUT_LEN", self._preprocessor.default_output_len)

    def _given_or(self, name: str, default: int) -> Array:
        given = self.inputs.get(name)
        return np.full((self.rows, 1), default, np.int32) if given is None else given.reshape(self.rows, 1)

    def words(self, name: str) -> list[Words]:
        """Each row's words as ids; empty words are padding of the client's own."""
        spell = self.tier.tokenizer.encode_word
        return [[ids for word in row for ids in spell(word)] for row in self._texts(name)]

    def stop_words(self) -> list[Words]:
        """The client's, and the model's further end ids, since an engine takes one; not if the client chose the end."""
        more = [] if "END_ID" in self.inputs else [[token] for token in self.tier.manifest.end_ids[1:]]
        return [[*words, *more] for words in self.words("STOP_WORDS_DICT")]

    def embedding_bias(self) -> Array:
        """[rows, vocab_size]: each word's weight is added to all of its ids, as NVIDIA does."""
        words = self._texts("EMBEDDING_BIAS_WORDS")
        weights = self.inputs.get("EMBEDDING_BIAS_WEIGHTS", np.zeros((self.rows, 0), np.float32)).reshape(self.rows, -1)
        if len(words[0]) != weights.shape[1]:
            raise BadRequest(f"{len(words[0])} EMBEDDING_BIAS_WORDS have {weights.shape[1]} EMBEDDING_BIAS_WEIGHTS")
        if not words[0]:
            return np.zeros((self.rows, 0), np.float32)
        bias = np.zeros((self.rows, self.tier.manifest.vocab_size), np.float32)
        for row in range(self.rows):
            for word, weight in zip(words[row], weights[row], strict=True):
                ids = self.tier.tokenizer.encode(word, add_special_tokens=False)
                np.add.at(bias[row], [token for token in ids if token < bias.shape[1]], weight)
        return bias

    def _texts(self, name: str) -> list[list[str]]:
        if name not in self.inputs:
            return [[] for _ in range(self.rows)]
        return [[read_text(word, name) for word in row] for row in self.inputs[name].reshape(self.rows, -1)]

    def prompt_table_extra_ids(self) -> Array | None:
        """[rows, longest prompt]: the extra id where an id is beyond the vocabulary, so a prompt table's; or None."""
        if "PROMPT_TABLE_EXTRA_ID" not in self.inputs:
            return None
        ids = padded(self.prompts(), self.pad_ids())
        extra = self.inputs["PROMPT_TABLE_EXTRA_ID"].reshape(self.rows, 1)
        return np.where(ids >= self.tier.manifest.vocab_size, extra, 0).astype(np.uint64)


_OUTPUTS: dict[str, Callable[[_Call], Array | None]] = {
    "INPUT_ID": lambda call: padded(call.prompts(), call.pad_ids()),
    "REQUEST_INPUT_LEN": lambda call: lengths(call.prompts()),
    "DECODER_INPUT_ID": lambda call: padded(call.decoder_prompts(), call.pad_ids()),
    "REQUEST_DECODER_INPUT_LEN": lambda call: lengths(call.decoder_prompts()),
    "BAD_WORDS_IDS": lambda call: word_lists(call.words("BAD_WORDS_DICT")),
    "STOP_WORDS_IDS": lambda call: word_lists(call.stop_words()),
    "EMBEDDING_BIAS": _Call.embedding_bias,
    "REQUEST_OUTPUT_LEN": _Call.output_lengths,
    "OUT_END_ID": _Call.end_ids,
    "OUT_PAD_ID": _Call.pad_ids,
    "OUT_PROMPT_TABLE_EXTRA_IDS": _Call.prompt_table_extra_ids,
}


def padded(rows: Sequence[Sequence[int]], pad_ids: Array) -> Array:
    """[rows, longest row], int32."""
    ids = np.repeat(pad_ids.astype(np.int32), max(map(len, rows), default=0), axis=1)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
    return ids


def lengths(rows: Sequence[Sequence[int]]) -> Array:
    """[rows, 1], int32."""
    return np.array([[len(row)] for row in rows], np.int32)


def word_lists(rows: Sequence[Words]) -> Array:
    """[rows, 2, n], int32: all ids of a row's words, padded with 0; each word's end in them, padded with -1.

    [[[5, 6], [9]]] is [[[5, 6, 9], [2, 3, -1]]]. n is 0 where there are no words.
    """
    width = max((sum(map(len, words)) for words in rows), default=0)
    lists = np.zeros((len(rows), 2, width), np.int32)
    lists[:, 1] = -1
    for row, words in enumerate(rows):
        flat = [token for word in words for token in word]
        lists[row, 0, : len(flat)] = flat
        lists[row, 1, : len(words)] = np.cumsum([len(word) for word in words])
    return lists
