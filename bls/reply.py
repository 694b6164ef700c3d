"""The pieces of an answer, and how they are put together for clients that do not want them one by one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bls.arrays import Array, int32, text
from bls.routing.decision import Decision

LOG_PROBS = ("cum_log_probs", "output_log_probs")
UNASKED_FOR = frozenset({"text_output", "finish_reason"})  # what a client gets that names no outputs


class Reply(NamedTuple):
    """One piece. `output_tokens` and output_log_probs are of this piece alone; only the last has a finish_reason."""

    text: str = ""
    output_tokens: int = 0
    log_probs: Mapping[str, Array] = MappingProxyType({})
    finish_reason: str = ""
    decision: Decision | None = None
    input_tokens: int = 0
    words_version: str = ""
    verdict: tuple[str, str] | None = None  # on the prompt: action and reason
    is_first: bool = False  # of several: it tells the route too, for those who can't wait for the end
    empty_because: str = ""  # of an answer without any text
    filtered_json: bool = False  # the word lists changed a structured answer, which may be no valid JSON any more

    def tensors(self, outputs: frozenset[str]) -> dict[str, Array]:
        """The router's output tensors among `outputs`, in the shapes of NVIDIA's tensorrt_llm_bls at run time.

        Those are not the config's dims: texts are [1], numbers and cum_log_probs [1,1], output_log_probs [1,1,n].
        """
        tensors = {"text_output": text(self.text), **self.log_probs}
        if "num_output_tokens" in outputs:
            tensors["num_output_tokens"] = int32(self.output_tokens)
        if "num_input_tokens" in outputs:
            tensors["num_input_tokens"] = int32(self.input_tokens)
        if self.finish_reason:
            tensors["finish_reason"] = text(self.finish_reason)
        if self.finish_reason or self.is_first:
            if self.decision:
                tensors["model"], tensors["reason"] = text(self.decision.model), text(self.decision.reason)
                if "route_info" in outputs or self._tells_unasked:
                    tensors["route_info"] = text(json.dumps(self._route_info(self.decision)))
            if self.words_version:
                tensors["words_version"] = text(self.words_version)
            if self.verdict:
                tensors["verdict"], tensors["verdict_reason"] = map(text, self.verdict)
        if self._tells_unasked and outputs >= UNASKED_FOR:
            outputs |= {"route_info"}
        return {name: array for name, array in tensors.items() if name in outputs}

    def _route_info(self, decision: Decision) -> dict[str, Any]:
        info = decision.as_json() | ({"empty": self.empty_because} if self.empty_because else {})
        return info | ({"filtered_json": True} if self.filtered_json else {})

    @property
    def _tells_unasked(self) -> bool:
        """Whether route_info says what a client should know that has not asked for it."""
        return bool(self.empty_because) or self.filtered_json


class PieceTensors:
    """The tensors of an answer's pieces, one after the other: a piece's are good until the next one's are made.

    Nearly all pieces hold the same few tensors, so these are made once and filled anew: with cold caches that is a
    third of what a piece costs this process (python -m scripts.bench response).
    """

    def __init__(self, outputs: frozenset[str]) -> None:
        self._outputs = outputs
        self._text: Array = text("")
        self._tokens, self._input_tokens = int32(0), int32(0)
        usual = {
            "text_output": self._text,
            "num_output_tokens": self._tokens,
            "num_input_tokens": self._input_tokens,
        }
        self._usual = {name: array for name, array in usual.items() if name in outputs}

    def of(self, reply: Reply) -> Mapping[str, Array]:
        """What `reply.tensors` gives."""
        if reply.finish_reason or reply.is_first or reply.log_probs:
            return reply.tensors(self._outputs)
        self._text[0] = reply.text.encode()
        self._tokens[0, 0] = reply.output_tokens
        self._input_tokens[0, 0] = reply.input_tokens
        return self._usual


def joined(replies: Iterable[Reply]) -> Reply:
    """One reply that says the same as all of them. There must be at least one."""
    replies = list(replies)
    return replies[-1]._replace(
        text="".join(reply.text for reply in replies),
        output_tokens=sum(reply.output_tokens for reply in replies),
        log_probs=joined_log_probs([reply.log_probs for reply in replies]),
    )


def accumulated(replies: Iterable[Reply]) -> Iterator[Reply]:
    """The same pieces, each with the whole text so far, as the peer's accumulate_tokens sends it."""
    whole = ""
    for reply in replies:
        whole += reply.text
        yield reply._replace(text=whole)


def joined_log_probs(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """cum_log_probs [1,1] counts all tokens so far, so the last stands; output_log_probs [1,1,n] follow each other."""
    found = {name: [part[name] for part in parts if name in part] for name in LOG_PROBS}
    return {
        name: arrays[-1] if name == "cum_log_probs" else np.concatenate(arrays, axis=-1)
        for name, arrays in found.items()
        if arrays
    }
