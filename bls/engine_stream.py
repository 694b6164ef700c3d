"""One engine request of a router: its tensors, the fallback before its first token, its stop and its end."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bls import policy
from bls.arrays import boolean, int32
from bls.decision import Decision, Prompt
from bls.errors import Busy, EngineFailed, EngineUnavailable, RouterError
from bls.reply import LOG_PROBS
from bls.request import Request
from bls.watcher import Watch

Tensors = Mapping[str, np.ndarray[Any, Any]]

# Before the first token these let another engine try; what the caller did wrong stays wrong there.
_FALL_BACK_ON = (EngineUnavailable, Busy, EngineFailed)


class Models(Protocol):
    """The door to the other models; arrays by tensor name, batch dimension kept. Each raises a RouterError."""

    def call(self, model: str, tensors: Tensors, outputs: Sequence[str]) -> Tensors:
        """The one response of a model that is not decoupled."""

    def stream(
        self, model: str, tensors: Tensors, outputs: Sequence[str], request_id: str
    ) -> Generator[Tensors, None, None]:
        """Each response in turn. Closing it waits for the engine's end: stop the request first."""

    def stop(self, model: str, request_id: str) -> None:
        """Ends the stream of that id; no error if there is none."""


class EngineStream(Iterator[Tensors]):
    """The responses of the engine that took the request: the chosen one, or the one that the policy falls back to."""

    def __init__(self, models: Models, request: Request, watch: Watch, encoded: Mapping[str, Tensors]) -> None:
        self._models = models
        self._request = request
        self._watch = watch
        self._encoded = encoded
        self._outputs = ["output_ids", "sequence_length", *sorted(request.outputs.intersection(LOG_PROBS))]
        self._first: Tensors | None = None
        self._rest: Generator[Tensors, None, None] | None = None  # None: not begun, or ended.

    def start(self, prompt: Prompt) -> Decision:
        """Waits for the first response. Raises the engine's error if no fallback is left."""
        decision = policy.choose(prompt)
        tried = set()
        while True:
            tried.add(decision.model)
            try:
                self._first = self._first_response(decision.model)
                return decision
            except _FALL_BACK_ON as error:
                instead = policy.fall_back(decision, prompt)
                if instead is None or instead.model in tried:
                    raise
                logging.warning(f"request id={self._request.id[:64]!r}: {error}; {instead.model} answers")
                decision = instead

    def _first_response(self, model: str) -> Tensors | None:
        child_id = uuid.uuid4().hex  # Two live requests of one id would stop each other.
        self._watch.stop_engine = lambda: self._models.stop(model, child_id)
        if self._watch.look() is not None:
            return None
        tensors = _engine_tensors(self._request, self._encoded[model])
        self._rest = self._models.stream(model, tensors, self._outputs, child_id)
        return self._guarded_next()

    def __next__(self) -> Tensors:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        response = self._guarded_next()
        if response is None:
            raise StopIteration
        return response

    def _guarded_next(self) -> Tensors | None:
        """None at the end; an engine's CANCELLED after the watch has stopped it is an end too."""
        response = None
        try:
            if self._rest is not None:
                response = next(self._rest, None)
        except RouterError:
            if self._watch.outcome is None:
                raise
        finally:
            if response is None:
                self._rest = None
        if response is not None and response["sequence_length"].flat[0] < 0:
            raise EngineFailed("the engine failed in mid-stream; the server's log says why")
        return response

    def close(self) -> None:
        """Stops an engine that still runs and waits for its end. The answer is complete: a failure is only logged."""
        if self._rest is None:
            return
        try:
            if self._watch.stop_engine is not None:
                self._watch.stop_engine()
        except RouterError as error:
            logging.warning(f"request id={self._request.id[:64]!r}: the engine could not be stopped: {error}")
        self._rest.close()


def _engine_tensors(request: Request, encoded: Tensors) -> Tensors:
    ids = encoded["INPUT_ID"]
    tensors = {
        "input_ids": ids,
        "input_lengths": int32(ids.shape[1]),
        "request_output_len": int32(request.max_tokens),
        "end_id": encoded["OUT_END_ID"],
        "pad_id": encoded["OUT_PAD_ID"],
        # Words are looked for while the text comes, so that the engine can be stopped; else one response is cheaper.
        "streaming": boolean(request.stream or bool(request.stop_words or request.bad_words)),
        "exclude_input_in_output": boolean(True),
        **request.sampling,
    }
    if encoded["STOP_WORDS_IDS"].shape[-1]:
        tensors["stop_words_list"] = encoded["STOP_WORDS_IDS"]
    return tensors
