"""One engine request of a router: its tensors, the fallbacks before its first token, its stop and its end."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Generator, Mapping

from bls import engine_process
from bls.arrays import Tensors, boolean, int32
from bls.errors import Busy, EngineFailed, EngineUnavailable, NotLoaded, Overloaded, RouterError, TimedOut
from bls.ports import Models
from bls.reply import LOG_PROBS
from bls.request import WHAT_FITS, Request
from bls.routing.engine_health import Attempt
from bls.routing.route import Route
from bls.watcher import POLL_SECONDS, Watch

_COOLING_DOWN, _FULL = "cooling_down", "full"


class _NotThis(Exception):
    """An engine did not take the request, so that another may; `why` is a word, `error` the client's if none does."""

    def __init__(self, why: str, error: RouterError) -> None:
        self.why = why
        self.error = error


def output_ids(response: Tensors) -> list[int]:
    """The ids of one response: the first `sequence_length` of output_ids, or all where only those were asked for."""
    ids: list[int] = response["output_ids"].ravel().tolist()
    if "sequence_length" in response:
        del ids[response["sequence_length"].item() :]
    return ids


def _tells_failure(response: Tensors) -> bool:
    """Whether it stands for an error: see ERRORS_AS_DATA of bls/triton_io.py."""
    if "sequence_length" in response:
        return bool(response["sequence_length"].item() < 0)
    ids = response["output_ids"]
    return ids.size == 1 and bool(ids.item() < 0)


class EngineStream:
    """The responses of the engine that took the request: the chosen one, or the one that the policy falls back to."""

    def __init__(
        self,
        models: Models,
        request: Request,
        watch: Watch,
        encoded: Mapping[str, Tensors],
        may_be_cut: bool = False,
    ) -> None:
        """`may_be_cut`: the text may end before the engine does, so that it had better come piece by piece."""
        self._models = models
        self._request = request
        self.max_tokens = request.max_tokens  # once it has started, a number
        self._watch = watch
        self._encoded = encoded
        self._outputs = ["output_ids", *sorted(request.outputs.intersection(LOG_PROBS))]
        # Else one response is cheaper.
        self._is_streaming = request.stream or may_be_cut
        # How long its first token takes says how long others wait, unless a grammar is compiled before it.
        self._tells_wait = self._is_streaming and not request.is_guided
        self._attempt: Attempt | None = None
        self.first: Tensors | None = None  # once it has started: the first response, None where the engine gave none
        self._rest: Generator[Tensors, None, None] | None = None  # None: not begun, or ended.

    @property
    def has_started(self) -> bool:
        """Whether an engine has taken the request, and `close` has not ended it since."""
        return self._attempt is not None

    def start(self, route: Route) -> None:
        """Waits for the first response; route.decision says whose. Raises the last engine's error if none is left. If
        that one is not available but another was full, it raises that one's: to try again later is what helps.

        Where queues were full, all are tried again after a pause. An engine that took the request and failed is not
        asked twice: the request itself may be what breaks it.
        """
        for retries_left in reversed(range(route.policy.settings.retries + 1)):
            busy: Busy | None = None
            was_busy = False
            while True:
                try:
                    self.first = self._first_response(route)
                    return
                except _NotThis as refused:
                    if isinstance(refused.error, Busy):
                        busy = refused.error
                        was_busy |= not isinstance(busy, Overloaded)
                    failed = route.decision.model
                    if route.fall_back(refused.why):
                        if refused.why not in (_COOLING_DOWN, _FULL):  # which are no news of this one request
                            told = f"{failed} is {refused.why}, {route.decision.model} is tried: {refused.error}"
                            logging.warning(f"request id={self._request.id[:64]!r}: {told}")
                    elif was_busy and retries_left and self._has_paused(route.pause_seconds()):
                        route.start_over()
                        break
                    elif busy is not None and isinstance(refused.error, EngineUnavailable):
                        raise busy from None
                    else:
                        raise refused.error from None

    def _has_paused(self, seconds: float) -> bool:
        """Waits; False if the client left or its time ran out."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._watch.look() is not None:
                return False
            time.sleep(min(left, POLL_SECONDS))
        return True

    def _first_response(self, route: Route) -> Tensors | None:
        model, seconds = route.decision.model, route.first_token_seconds if self._is_streaming else None
        if self._request.max_tokens == WHAT_FITS:
            self.max_tokens = route.prompt.room(model)
        child_id = uuid.uuid4().hex  # Two live requests of one id would stop each other.
        self._watch.attempt(lambda: self._models.stop(model, child_id), seconds)
        if self._watch.look() is not None:
            return None
        try:
            attempt = route.begin(tells_wait=self._tells_wait)
        except Overloaded as error:
            raise _NotThis(_FULL, error) from None
        if attempt is None:
            raise _NotThis(_COOLING_DOWN, EngineUnavailable(f"{model} failed too often and is left alone for a while"))
        self._attempt = attempt
        process = engine_process.of(model)
        if process is not None:
            self._watch.depend_on(lambda: process.is_gone, attempt.close)
        tensors = self._engine_tensors(self._encoded[model])
        # Engines of this repository, which say what process serves them, pad nothing; of others that is not known. Each
        # tensor of a response costs all processes on its way some 80 us together.
        outputs = self._outputs if process is not None else [*self._outputs, "sequence_length"]
        try:
            self._rest = self._models.stream(model, tensors, outputs, child_id)
            response = self.following()
        except (EngineUnavailable, Busy, EngineFailed) as error:
            if isinstance(error, NotLoaded):
                attempt.not_loaded()
            self._end_attempt()
            raise _NotThis("unavailable", error) from None
        if not self._watch.first_token_came() and self._watch.outcome is None:
            attempt.failed()
            self._end_attempt()
            raise _NotThis("slow", TimedOut(f"{model} gave no token in {seconds:g} seconds"))
        attempt.worked(has_token=self._tells_wait and response is not None)
        return response

    def following(self) -> Tensors | None:
        """The next response, None at the end; an engine's CANCELLED after the watch has stopped it is an end too."""
        if self._rest is None:
            return None
        try:
            response = next(self._rest, None)
        except RouterError as error:
            self._rest = None
            if self._watch.outcome is None and not self._watch.is_late:
                self._note(error)
                raise
            return None
        if response is None:
            self._rest = None
        elif _tells_failure(response):
            failure = EngineFailed("the engine failed in mid-stream; the server's log says why")
            self._note(failure)
            raise failure
        return response

    def _note(self, error: RouterError) -> None:
        """What the engine's breaker counts: not what the request is to blame for, nor a full queue."""
        if self._attempt and isinstance(error, EngineUnavailable | EngineFailed) and not isinstance(error, NotLoaded):
            self._attempt.failed()

    def close(self) -> None:
        """Stops an engine that still runs and waits for its end. The answer is complete: a failure is only logged."""
        try:
            if self._rest is not None and self._watch.stop_engine is not None:
                self._watch.stop_engine()
        except RouterError as error:
            logging.warning(f"request id={self._request.id[:64]!r}: the engine could not be stopped: {error}")
        self._end_attempt()

    def _end_attempt(self) -> None:
        """Reads the engine's stream to its end, which must come before any other stream of this process begins."""
        try:
            if self._rest is not None:
                self._rest.close()
        finally:
            self._rest = None
            self._watch.depend_on(lambda: False, lambda: None)
            if self._attempt is not None:
                self._attempt.close()
                self._attempt = None

    def _engine_tensors(self, encoded: Tensors) -> Tensors:
        ids = encoded["INPUT_ID"]
        tensors = {
            "input_ids": ids,
            "input_lengths": int32(ids.shape[1]),
            "request_output_len": int32(self.max_tokens),
            "end_id": encoded["OUT_END_ID"],
            "pad_id": encoded["OUT_PAD_ID"],
            "streaming": boolean(self._is_streaming),
            "exclude_input_in_output": boolean(True),
            **self._request.sampling,
        }
        if encoded["STOP_WORDS_IDS"].shape[-1]:
            tensors["stop_words_list"] = encoded["STOP_WORDS_IDS"]
        return tensors
