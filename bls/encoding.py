"""The prompt in the tokens of each engine, asked of the model `preprocessing`."""

from __future__ import annotations

import json

from bls.arrays import Tensors, boolean, int32, strings
from bls.contract import PREPROCESSING
from bls.engine_files import EngineFiles
from bls.ports import Caller
from bls.request import Request
from bls.tiers import tier_of

_ENCODED = ("INPUT_ID", "STOP_WORDS_IDS", "OUT_END_ID", "OUT_PAD_ID")


def encoded_for_each(models: Caller, engines: EngineFiles, request: Request) -> dict[str, Tensors]:
    """By engine model: INPUT_ID [1, n] and what belongs to it. One call for the engines that share a tokenizer.

    Raises a RouterError.
    """
    calls: dict[str, Tensors] = {}
    encoded = {}
    for model in engines.models:
        tokenizer = engines.tokenized_by(model)
        if tokenizer not in calls:
            calls[tokenizer] = models.call(PREPROCESSING, _tensors(request, tier_of(tokenizer)), _ENCODED)
        encoded[model] = calls[tokenizer]
    return encoded


def _tensors(request: Request, tier: str) -> Tensors:
    tensors = {"REQUEST_OUTPUT_LEN": int32(request.max_tokens), "TIER": strings(tier)}
    if request.messages:
        tensors["MESSAGES"] = strings(request.messages)
    else:
        tensors["QUERY"] = strings(request.text)
        tensors["APPLY_CHAT_TEMPLATE"] = boolean(request.apply_chat_template)
    if request.template_values:
        tensors["CHAT_TEMPLATE_KWARGS"] = strings(json.dumps(request.template_values))
    if request.stop_words:
        tensors["STOP_WORDS_DICT"] = strings(*request.stop_words)
    if request.end_id is not None:
        tensors["END_ID"] = int32(request.end_id)
    if request.pad_id is not None:
        tensors["PAD_ID"] = int32(request.pad_id)
    return tensors
