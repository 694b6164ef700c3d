"""A tokenizer of Hugging Face's `tokenizers` library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

import tokenizers

from bls.tokens.tokenizer import Settings, Tokenizer

# Otherwise each process keeps a thread per core for batches of texts, and here a batch is one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class FastTokenizer(Tokenizer):
    """`core` adds what its post-processor says, as transformers does; `settings.adds_bos` overrules it."""

    def __init__(self, core: tokenizers.Tokenizer, settings: Settings) -> None:
        super().__init__(settings)
        core.no_padding()
        core.no_truncation()
        self.core = core
        self.vocab_size = max(core.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        added = core.get_added_tokens_decoder()
        self.special_ids = {token.content: token_id for token_id, token in added.items() if token.special}

    def token_id(self, token: str | None) -> int | None:
        found: int | None = None if token is None else self.core.token_to_id(token)
        return found

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids = _encode(self.core, text, add_special_tokens)
        return self._with_one_bos(ids, text) if add_special_tokens else ids

    def _with_one_bos(self, ids: list[int], text: str) -> list[int]:
        bos, name = self.bos_id, self.settings.bos_token
        if bos is None or name is None:
            return ids
        written = text.startswith(name)
        first = ids[:1] == [bos]
        if self.settings.adds_bos and not first:
            return [bos, *ids]
        # The post-processor's own stands in front of the one that the text begins with.
        doubled = written and ids[:2] == [bos, bos] and not text.startswith(2 * name)
        unwanted = self.settings.adds_bos is False and first and not written
        return ids[1:] if doubled or unwanted else ids

    def encode_literally(self, text: str) -> list[int]:
        return _encode(self._literal, text, False)

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A copy, made for the first text that needs it: the switch belongs to the whole tokenizer."""
        copy = tokenizers.Tokenizer.from_str(self.core.to_str())
        copy.encode_special_tokens = True
        return copy

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return str(self.core.decode(self._known(ids), skip_special_tokens=skip_special_tokens))


def _encode(core: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    # A fifth faster than `encode`, since it leaves out where in the text each token stands.
    ids: list[int] = core.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return ids
