"""A tokenizer of Google's `sentencepiece` library: a tokenizer.model, or one that a GGUF describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sentencepiece

from bls.tokens.tokenizer import Settings, Tokenizer


class SentencePieceTokenizer(Tokenizer):
    """Its special tokens are the model's control pieces. SentencePiece never reads those from a text, nor shows them;
    here they cut a text, as they do for Hugging Face and llama.cpp: what stands between them is a text of its own."""

    def __init__(self, model: bytes, settings: Settings) -> None:
        core: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        bos, eos = (core.id_to_piece(token) if token >= 0 else None for token in (core.bos_id(), core.eos_id()))
        super().__init__(replace(settings, bos_token=settings.bos_token or bos, eos_token=settings.eos_token or eos))
        self.core = core
        self.vocab_size = core.get_piece_size()
        self.special_ids = {
            core.id_to_piece(token): token for token in range(self.vocab_size) if core.is_control(token)
        }
        self._special_names_by_id = {token: name for name, token in self.special_ids.items()}

    def token_id(self, token: str | None) -> int | None:
        found: int = -1 if token is None else self.core.piece_to_id(token)
        return found if found >= 0 and self.core.id_to_piece(found) == token else None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = []
        for piece in self.split_special(text):
            special = self.special_ids.get(piece)
            ids += self.encode_literally(piece) if special is None else [special]
        bos = self.bos_id
        wants_bos = add_special_tokens and self.settings.adds_bos is not False
        return [bos, *ids] if wants_bos and bos is not None and ids[:1] != [bos] else ids

    def encode_literally(self, text: str) -> list[int]:
        ids: list[int] = self.core.encode(text)
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        known = self._known(ids)
        if skip_special_tokens:
            return str(self.core.decode(known))
        texts: list[str] = []
        between: list[int] = []
        for token in known:
            if token in self._special_names_by_id:
                texts += [str(self.core.decode(between)), self._special_names_by_id[token]]
                between = []
            else:
                between.append(token)
        return "".join([*texts, str(self.core.decode(between))])
