"""Replaces the processes of models that have died.

The python backend never restarts a stub that died, and the model stays "ready" while some of its requests fail or,
streams, never end. Loading alone does nothing to a model that is loaded, and an unload may never come to its end. A
load with a changed config starts new processes beside the old ones and then changes over: nothing is away meanwhile.
Where only groups of instances have changed, that is so for these groups alone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from bls.contract import ROUTER
from bls.tiers import is_engine
from scripts.server.model_control import READY, ControlFailed, ControlRefused, ModelControl
from scripts.server.old_processes import OldProcesses
from scripts.server.stub_census import StubCensus

ATTEMPTS = 3
PAUSE_S = 5.0  # between the end of an attempt and the next one of the same model
SECOND_LOOK_S = 0.4
LOOK_S = 30.0  # for old processes, where none has died
REST_S = 60.0  # after the last attempt
WHOLE_S = 5.0  # until the new processes must be seen
ENDING_S = 120.0  # until processes that were replaced count as old: Triton takes a second for each


class Repairs:
    """Made when the server is ready, then `look` several times a second. Repairs run in a thread of their own.

    stubs: the model of each living process, the oldest first, by a fresh look at /proc or not.
    instance: Triton's name for what a process of it, living or dead, is; "" where that was never seen.
    old_routers: ends those of the router that were replaced.
    """

    def __init__(
        self,
        control: ModelControl,
        stubs: Callable[[bool], Mapping[int, str]],
        instance: Callable[[int], str],
        old_routers: OldProcesses,
    ) -> None:
        self.has_lost = False  # whether a process was missed in the last look
        self.old: Counter[str] = Counter()  # by model, the processes that were replaced and don't end
        self.repaired: Counter[str] = Counter()  # by model, how often it was loaded anew
        self._control = control
        self._stubs = stubs
        self._instance = instance
        self._old_routers = old_routers
        self._census = StubCensus()
        self._census.look(stubs(True))
        self._suspects: set[str] = set()
        self._is_refused = False  # which has been said
        self._not_before: dict[str, float] = {}
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._repair: threading.Thread | None = None
        self._judge_at = 0.0

    def look(self) -> list[str]:
        """Starts a repair where one is due. Returns what has been done since the last look, a line each."""
        self.has_lost = False
        if not self.is_repairing:
            living = self._stubs(False)
            if self._census.look(living) or time.monotonic() >= self._judge_at:
                self._judge()
            if ended := self._old_routers.look(living):
                self._messages.put(f"model {ROUTER}: {ended} processes that were replaced did not end, and are killed")
        return [self._messages.get() for _ in range(self._messages.qsize())]

    @property
    def left_behind(self) -> int:
        """Processes that were replaced and did not end by themselves. Of those that were killed, threads are left."""
        return sum(self.old.values()) + self._old_routers.ended

    @property
    def is_repairing(self) -> bool:
        return self._repair is not None and self._repair.is_alive()

    def stop(self) -> None:
        """The server is about to stop: nothing is loaded any more."""
        self._stopping.set()

    def _judge(self) -> None:
        # Two looks in a row, since a model that somebody unloads or loads passes through every state.
        short = self._short_of_processes()
        due = {model for model in short if time.monotonic() >= self._not_before.get(model, 0.0)}
        for model in sorted(due & self._suspects)[:1]:
            self._start(model)
        self._suspects = short
        self._judge_at = time.monotonic() + (SECOND_LOOK_S if due else PAUSE_S if short else LOOK_S)

    def _short_of_processes(self) -> set[str]:
        """The loaded models that lack a process by their own config; forgets what the others had."""
        self._census.look(self._stubs(True))
        short = set()
        try:
            states = self._control.states()
            for model in self._census.models():
                if READY not in states.get(model, []):
                    self._census.forget(model)  # it's being unloaded or loaded on purpose
                    continue
                expected = self._control.instances(model) * states[model].count(READY)
                if self._census.dead(model, expected):
                    short.add(model)
                is_settled = self._census.settled_s(model) > ENDING_S
                self.old[model] = self._census.old(model, expected) if is_settled else 0
        except ControlRefused as refused:
            if not self._is_refused:
                self._messages.put(f"error: models whose process dies cannot be loaded again: {refused}")
            self._is_refused = True
            return set()
        except ControlFailed:  # nothing is known, until the next look
            return self._suspects
        self._is_refused = False
        self.has_lost = bool(short - self._suspects)
        return short

    def _start(self, model: str) -> None:
        self._messages.put(f"model {model}: a process died; it is replaced while the others serve")
        self._repair = threading.Thread(target=self._repaired, args=(model,), daemon=True)
        self._repair.start()

    def _repaired(self, model: str) -> None:
        began, pause_s = time.monotonic(), PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if attempt == 1 and self._replace(model):
                    pause_s = 0.0
                else:
                    self._load_anew(model)
                self.repaired[model] += 1
                self._messages.put(f"model {model} is whole again after {time.monotonic() - began:.0f} s")
                if is_engine(model):
                    self._free_the_router()
                break
            except ControlFailed as failed:
                if self._stopping.is_set():
                    return
                self._messages.put(f"model {model} could not be loaded anew, attempt {attempt} of {ATTEMPTS}: {failed}")
            if self._stopping.wait(PAUSE_S if attempt < ATTEMPTS else 0.0):
                return
        else:
            self._messages.put(f"model {model} serves on without it; the next attempt is in {REST_S:.0f} s")
            self._not_before[model] = time.monotonic() + REST_S
            return
        self._not_before[model] = time.monotonic() + pause_s

    def _free_the_router(self) -> None:
        """Router processes that were waiting for an engine's process when it died do so for ever."""
        if READY in self._control.states().get(ROUTER, []):
            self._load_anew(ROUTER)
            self._messages.put(f"model {ROUTER} is loaded anew: processes of it were waiting for the one that died")

    def _replace(self, model: str) -> bool:
        """Has other processes take the place of those that died. False where all of the model must be loaded.

        Of the router's, those that had nothing to do: tritonserver 2.51 waits for the end of what a process answered,
        which may never come, and loads nothing of the model meanwhile.
        """
        expected = self._control.instances(model)
        dead = self._census.dead(model, expected)
        names = {self._instance(pid) for pid in dead}
        if model == ROUTER and not self._old_routers.were_idle(dead):
            return False
        if not dead or self._control.states()[model].count(READY) > 1 or not self._control.replace(model, names):
            return False
        self._census.bury(model, dead)
        self._wait_until_whole(model, expected)
        return True

    def _load_anew(self, model: str) -> None:
        old = {pid for pid, of in self._stubs(True).items() if of == model}
        self._control.load_anew(model)
        self._wait_until_whole(model, self._control.instances(model))
        if model == ROUTER:
            self._old_routers.replaced(old)

    def _wait_until_whole(self, model: str, expected: int) -> None:
        """Raises ControlFailed where its new processes aren't there in time."""
        end = time.monotonic() + WHOLE_S
        while True:
            self._census.look(self._stubs(True))
            if not self._census.dead(model, expected):
                return
            if time.monotonic() > end or self._stopping.wait(0.2):
                raise ControlFailed("it lacks a process again")
