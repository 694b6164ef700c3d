"""xgrammar_tokenizer_info.json: the vocabulary for guided decoding. The tiers' config.pbtxt name it, and TensorRT-LLM's
backend doesn't load a model whose file is missing.

What NVIDIA's examples/generate_xgrammar_tokenizer_info.py writes, without torch and transformers; and the backend
(model_instance_state.cc) reads all three fields, tokenizer_str included.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bls.tokens.huggingface import FastTokenizer
from bls.tokens.sentencepiece_tokenizer import SentencePieceTokenizer
from bls.tokens.tokenizer import Tokenizer

FILE_NAME = "xgrammar_tokenizer_info.json"
_SPACE = "\u2581"  # SentencePiece's sign for a space.


def info(loaded: Tokenizer, end_ids: Sequence[int]) -> dict[str, Any]:
    """`encoded_vocab` has each id's token in its place, "" where there is none."""
    if isinstance(loaded, SentencePieceTokenizer):
        names = [loaded.core.id_to_piece(token) for token in range(loaded.vocab_size)]
        text = json.dumps(_like_huggingface(loaded))
    else:
        assert isinstance(loaded, FastTokenizer)
        names = [loaded.core.id_to_token(token) or "" for token in range(loaded.vocab_size)]
        text = loaded.core.to_str()
    return {"encoded_vocab": names, "tokenizer_str": text, "stop_token_ids": list(end_ids)}


def _like_huggingface(loaded: SentencePieceTokenizer) -> dict[str, Any]:
    """As much of a tokenizer.json as xgrammar reads: that bytes are tokens, and whether a text begins with a space."""
    begins_with_space = loaded.core.encode("a", out_type=str)[0].startswith(_SPACE)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prepend = [{"type": "Prepend", "prepend": _SPACE}] if begins_with_space else []
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    }
