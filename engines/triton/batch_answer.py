"""The answer to one request of one or more rows: each row runs on its own, all of them are answered by one response."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from bls.errors import BadRequest, RouterError
from bls.ports import Sender
from engines.triton.submission import Submission
from engines.triton.tensors import Arrays, EngineRequest

# An ensemble's client knows the inputs by other names, and no code stands between to translate: a refusal has both.
_NAMES_OF_THE_ENSEMBLE = {
    "input_ids": "input_text",
    "request_output_len": "max_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "stop_words_list": "stop_words",
}
_KNOWN_NAME = re.compile(rf"\b({'|'.join(_NAMES_OF_THE_ENSEMBLE)})\b")


class BatchAnswer:
    """Gathers what the rows end with; one that fails makes the request fail at once, and stops the others."""

    def __init__(self, rows: Sequence[EngineRequest], pad_ids: Sequence[int], sender: Sender) -> None:
        self._rows = rows
        self._pad_ids = pad_ids
        self._sender = sender
        self._lock = threading.Lock()
        self._ended: dict[int, Arrays] = {}
        self._has_failed = False

    def submissions(self, requested: frozenset[str]) -> list[Submission]:
        """One for each row. Without a request id: those of a batch's rows, and of different clients, may be equal."""
        return [Submission("", row, requested, _Row(self, number)) for number, row in enumerate(self._rows)]

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the rows that still run."""
        return self._has_failed or self._sender.is_cancelled()

    def end_row(self, number: int, tensors: Arrays, error: RouterError | None) -> None:
        """Takes a row's end; the last one, and the first error, answer the request."""
        with self._lock:
            if self._has_failed:
                return
            if error is None:
                self._ended[number] = tensors
                if len(self._ended) < len(self._rows):
                    return
            else:
                self._has_failed = True
        if error is None:
            self._sender.finish(self._merged())
        else:
            self._sender.finish(error=error_of_row(error, number, len(self._rows)))

    def _merged(self) -> Arrays:
        rows = [self._ended[number] for number in range(len(self._rows))]
        return {name: stacked([row[name] for row in rows], self._padding(name)) for name in rows[0]}

    def _padding(self, name: str) -> Sequence[float]:
        return self._pad_ids if name == "output_ids" else [0] * len(self._rows)


class _Row:
    """One row's way back; it is not streamed, so all that comes is its end."""

    def __init__(self, answer: BatchAnswer, number: int) -> None:
        self._answer = answer
        self._number = number

    def is_cancelled(self) -> bool:
        return self._answer.is_cancelled()

    def send(self, tensors: Arrays) -> None:
        raise AssertionError("a row of a batch cannot be streamed")

    def finish(self, tensors: Arrays | None = None, error: RouterError | None = None) -> None:
        self._answer.end_row(self._number, tensors or {}, error)


class Held:
    """A way back that keeps the answer until `release`: a static batch answers when all of it has ended."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._answer: tuple[Arrays | None, RouterError | None] | None = None
        self._has_ended = threading.Event()

    def is_cancelled(self) -> bool:
        return self._sender.is_cancelled()

    def send(self, tensors: Arrays) -> None:
        raise AssertionError("a static batch cannot be streamed")

    def finish(self, tensors: Arrays | None = None, error: RouterError | None = None) -> None:
        self._answer = (tensors, error)
        self._has_ended.set()

    def wait(self) -> None:
        """Returns once there is an answer."""
        self._has_ended.wait()

    def release(self) -> None:
        """Sends the answer that has come."""
        if self._answer is not None:
            tensors, error = self._answer
            self._sender.finish(tensors, error)


def error_of_row(error: RouterError, number: int, rows: int) -> RouterError:
    """The same error, saying which row it is about if there are several."""
    return type(error)(f"row {number}: {error.reason}") if rows > 1 else error


def in_both_names(error: BadRequest) -> BadRequest:
    """The same refusal, with the ensemble's name of an input behind the engine's."""
    return BadRequest(_KNOWN_NAME.sub(lambda found: f"{found[0]} ({_NAMES_OF_THE_ENSEMBLE[found[0]]})", error.reason))


def stacked(arrays: Sequence[np.ndarray[Any, Any]], padding: Sequence[float]) -> np.ndarray[Any, Any]:
    """Rows of shape [1, ...] on each other, the last axis of each filled up to the longest with its padding."""
    widest = max(array.shape[-1] for array in arrays)
    result = np.empty((len(arrays), *arrays[0].shape[1:-1], widest), arrays[0].dtype)
    for row, array in enumerate(arrays):
        result[row, ..., array.shape[-1] :] = padding[row]
        result[row, ..., : array.shape[-1]] = array[0]
    return result
