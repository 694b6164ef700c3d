"""Loads a model again when one of its processes has died.

The python backend never restarts a stub that died, and the model stays "ready" while its requests fail or, streams,
never end. Loading alone does nothing to a model that is loaded: it must be unloaded first, to its end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

from scripts.server.model_control import READY, UNAVAILABLE, ControlFailed, ControlRefused, ModelControl

ATTEMPTS = 3
PAUSE_S = 5.0  # between the end of an attempt and the next one of the same model
UNLOAD_PROCESS_S = 2.0  # tritonserver ends one after the other and takes a second for each


class Stuck(Exception):
    """The unload does not come to its end, so no further attempt helps."""


class Repairs:
    """Made when the server is ready, then `look` once a second. Repairs run in a thread, so that it returns at once.

    count: how many stub processes each model has, by a fresh count or not.
    unload_s: how long a model may take to finish its requests, the end of its processes not included.
    """

    def __init__(self, control: ModelControl, count: Callable[[bool], Counter[str]], unload_s: float) -> None:
        self.gave_up = ""  # the model that could not be repaired
        self._control = control
        self._count = count
        self._unload_s = unload_s
        self._most = count(True)  # the processes that each model has been seen with
        self._suspects: set[str] = set()
        self._is_refused = False  # which has been said
        self._not_before: dict[str, float] = {}
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._repair: threading.Thread | None = None

    def look(self) -> list[str]:
        """Starts a repair where one is due. Returns what has been done since the last look, a line each."""
        if not (self._repair and self._repair.is_alive()):
            # Two looks in a row, since a model that somebody unloads or loads passes through every state.
            suspects = self._short_of_processes() if self._missing(fresh=False) else set()
            for model in sorted(suspects & self._suspects)[:1]:
                self._start(model)
            self._suspects = suspects
        return [self._messages.get() for _ in range(self._messages.qsize())]

    def stop(self) -> None:
        """The server is about to stop: nothing is unloaded or loaded any more."""
        self._stopping.set()

    def _is_due(self, model: str) -> bool:
        return time.monotonic() >= self._not_before.get(model, 0.0)

    def _missing(self, fresh: bool) -> dict[str, int]:
        """How many processes those models have that have had more."""
        counts = self._count(fresh)
        self._most |= counts
        return {model: counts[model] for model in self._most if counts[model] < self._most[model]}

    def _short_of_processes(self) -> set[str]:
        """The loaded models that lack a process by their own config; forgets what the others had."""
        missing = {model: count for model, count in self._missing(fresh=True).items() if self._is_due(model)}
        short = set()
        try:
            states = self._control.states()
            for model, count in missing.items():
                if READY not in states.get(model, []):
                    del self._most[model]  # it's being unloaded or loaded on purpose
                elif count < self._expected(model, states):
                    short.add(model)
                else:
                    self._most[model] = count  # it was loaded again with fewer instances
        except ControlRefused as refused:
            if not self._is_refused:
                self._messages.put(f"error: models whose process dies cannot be loaded again: {refused}")
            self._is_refused = True
            return set()
        except ControlFailed:  # nothing is known, until the next look
            return set()
        self._is_refused = False
        return short

    def _expected(self, model: str, states: dict[str, list[str]]) -> int:
        return self._control.instances(model) * states.get(model, []).count(READY)

    def _start(self, model: str) -> None:
        processes = self._most[model]
        seconds = f"about {processes} s" if processes > 1 else "about a second"
        self._messages.put(f"model {model}: a process died; loading it again, unloading it takes {seconds}")
        self._repair = threading.Thread(target=self._repaired, args=(model,), daemon=True)
        self._repair.start()

    def _repaired(self, model: str) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._load_again(model)
                self._messages.put(f"model {model} is back")
                break
            except ControlFailed as failed:
                if self._stopping.is_set():
                    return
                self._messages.put(f"model {model} is not back, attempt {attempt} of {ATTEMPTS}: {failed}")
            except Stuck:
                if not self._stopping.is_set():
                    self._messages.put(f"model {model} cannot be unloaded within {self._longest_unload_s(model):.0f} s")
                    self.gave_up = model
                return
            if attempt < ATTEMPTS and self._stopping.wait(PAUSE_S):
                return
        else:
            self.gave_up = model
        self._not_before[model] = time.monotonic() + PAUSE_S

    def _load_again(self, model: str) -> None:
        self._control.unload(model, self._longest_unload_s(model))
        # A load before that would be undone by the unload.
        if not self._holds_within(self._longest_unload_s(model), self._is_unloaded, model):
            # As when the process died over a request: tritonserver then never ends the unload (seen with 2.51).
            raise Stuck
        self._control.load(model)
        if not self._holds_within(PAUSE_S, self._is_whole, model):
            raise ControlFailed("it lacks a process again")
        self._most[model] = self._count(True)[model]

    def _longest_unload_s(self, model: str) -> float:
        return self._unload_s + UNLOAD_PROCESS_S * self._most[model]

    def _is_unloaded(self, model: str) -> bool:
        return set(self._control.states().get(model, [])) <= {UNAVAILABLE}

    def _is_whole(self, model: str) -> bool:
        states = self._control.states()
        expected = self._expected(model, states) if READY in states.get(model, []) else 0
        return bool(expected) and self._count(True)[model] >= expected

    def _holds_within(self, timeout_s: float, condition: Callable[[str], bool], model: str) -> bool:
        end = time.monotonic() + timeout_s
        while not condition(model):
            if time.monotonic() > end or self._stopping.wait(0.2):
                return False
        return True
