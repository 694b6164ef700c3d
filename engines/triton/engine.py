"""The engine as Triton's stub sees it: requests go to a worker process, its news go out to the clients.

Triton's thread submits; one thread of ours at a time reads the worker's news, sends the responses, asks after clients
that left, answers for a worker that doesn't, and starts another one when one is lost.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from bls.errors import Busy, EngineFailed, EngineUnavailable
from bls.ports import Sender
from engines.triton.attempt import attempt
from engines.triton.coalescer import Pace
from engines.triton.delivery import FAILED, Delivery
from engines.triton.grammars import Decided, Grammars, no_grammars
from engines.triton.held import HeldBatches
from engines.triton.relay import Relay
from engines.triton.restart import Restart
from engines.triton.silence import PATIENCE, Patience
from engines.triton.streams import Streams
from engines.triton.submission import Submission
from engines.triton.tensors import EngineRequest
from engines.triton.worker_link import Lost, Processes, Worker, WorkerLink
from engines.worker import process_tree
from engines.worker.scheduler import Statistics
from engines.worker.worker import Add, Batch, Ready, Step, Stop

log = logging.getLogger(__name__)

_NO_SIGN_OF_LIFE = "the engine gives no sign of life"


@dataclass(frozen=True)
class Periods:
    """Seconds between two looks: at clients that may have left, and at the figures for the metrics."""

    cancellation: float = 0.1
    statistics: float = 0.1


class Engine:
    """`launch` starts a worker. `publish` gets its statistics every so often while busy, and once when idle.

    Above `max_waiting` requests that don't compute yet the next one is refused; 0 means no limit, as in TensorRT-LLM.
    """

    def __init__(
        self,
        launch: Callable[[], Worker],
        pace: Pace,
        periods: Periods = Periods(),
        publish: Callable[[Statistics], None] = lambda statistics: None,
        max_waiting: int = 0,
        patience: Patience = PATIENCE,
        processes: Processes = process_tree,
        grammars: Callable[[Decided], Grammars] = no_grammars,
    ) -> None:
        self._launch = functools.partial(WorkerLink, launch, processes, patience)
        self._periods = periods
        self._publish = publish
        self._max_waiting = max_waiting
        self._lock = threading.Lock()  # Guards the streams and the order of commands, between Triton's thread and ours.
        self._streams = Streams(pace)
        self._relay = Relay(self._turn)
        self._delivery = Delivery(
            self._streams, self._lock, pace, periods.cancellation, lambda key: self._worker.send(Stop(key)), self._relay
        )
        self._closing = False
        self._restart = Restart()
        self._next_publication = 0.0
        self._wake_reader, self._wake_writer = os.pipe()
        self._held = HeldBatches(grammars, self._wake)
        self._worker = self._launch()
        self.statistics, self._load_seconds = self._worker.await_ready()
        attempt("publishing", lambda: publish(self.statistics))
        self._relay.start()

    def submit(self, request_id: str, request: EngineRequest, requested: frozenset[str], sender: Sender) -> None:
        """Hands a request to the worker. Raises EngineUnavailable, Busy, or BadRequest if its id is running already."""
        self.submit_all([Submission(request_id, request, requested, sender)])

    def submit_all(self, submissions: Sequence[Submission]) -> None:
        """The same for requests that are to begin together. Where it raises, it has taken none of them."""
        with self._lock:
            self._check_room(submissions)
            unknown = self._held.unknown([each.request.generation.guide for each in submissions])
            if unknown or not len(self._streams):
                self._wake()
            adds = []
            for each in submissions:
                key = self._streams.begin(each.request_id, each.request, each.requested, each.sender, bool(unknown))
                adds.append(Add(key, each.request.generation))
            if unknown:
                self._held.hold(adds, unknown)
            else:
                self._begin(adds)

    def stop(self, request_id: str) -> None:
        """Ends the running request of that id with what it has; one that is unknown or has ended is fine.

        Its stream ends soon, whether the worker answers or not.
        """
        with self._lock:
            keys = self._streams.stop(request_id, time.monotonic())
            for key in keys:
                self._worker.send(Stop(key))
            if keys:
                self._wake()

    def close(self) -> None:
        """Ends all streams, the worker and the thread."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._held.close()
        self._relay.close(self._wake)
        self._delivery.fail_all(EngineUnavailable("the model is being unloaded"))
        self._relay.work()
        self._worker.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _begin(self, adds: Sequence[Add]) -> None:
        """Under the lock."""
        self._worker.silence.begins(time.monotonic())
        self._worker.send(Batch(tuple(adds)))

    def _check_room(self, submissions: Sequence[Submission]) -> None:
        if not self._worker.is_ready or self._restart.is_planned:
            raise EngineUnavailable("the engine is being started again")
        if self._worker.silence.is_suspect:
            raise EngineUnavailable(_NO_SIGN_OF_LIFE)
        self._streams.check_ids([each.request_id for each in submissions])
        most = self.statistics.most + self._max_waiting
        if self._max_waiting and len(self._streams) + len(submissions) > most:
            raise Busy(f"the engine's queue is full: {self._max_waiting} requests are waiting")

    def _wake(self) -> None:
        """The thread sleeps for as long as it has no stream to look after."""
        os.write(self._wake_writer, b".")

    def _turn(self) -> None:
        self._relay.work()
        readable = wait(self._sources(), self._timeout(time.monotonic()))
        if self._wake_reader in readable:
            os.read(self._wake_reader, 4096)
        if self._worker.connection in readable:
            self._read_news()
            self._relay.work()
        self._release_held()
        self._delivery.send_due()
        self._delivery.end_stopped()
        self._delivery.check_cancellations()
        self._look_after_worker()
        self._relay.work()
        self._restart_if_due()

    def _sources(self) -> list[Any]:
        return [self._wake_reader] if self._restart.is_planned else [self._worker.connection, self._wake_reader]

    def _timeout(self, now: float) -> float | None:
        with self._lock:
            times = self._delivery.times()
            if self._restart.due_at is not None:
                times.append(self._restart.due_at)
            if self._is_watching:
                times.append(now + self._worker.silence.seconds_to_look(now))
        return max(0.0, min(times) - now) if times else None

    def _read_news(self) -> None:
        try:
            for message in self._worker.news():
                self._take(message)
        except Lost as lost:
            self._lose_worker(str(lost))

    def _release_held(self) -> None:
        """Hands on the requests whose grammars are known by now, and refuses those whose grammar is wrong."""
        for guide, error in self._held.verdicts():
            with self._lock:
                decision = self._held.decide(guide, error is not None)
                for batch in decision.ready:
                    if adds := [add for add in batch if self._streams.release(add.key)]:
                        self._begin(adds)
            for key in decision.refused:
                self._delivery.drop(key, error or EngineFailed(FAILED))

    def _take(self, message: Any) -> None:
        if isinstance(message, Ready):
            log.info("the engine is back")
        elif isinstance(message, Step):
            self._restart.worked()
            for event in message.events:
                self._relay.later(functools.partial(self._delivery.deliver, event))
            self._publish_if_due(message.statistics)

    def _publish_if_due(self, statistics: Statistics) -> None:
        now = time.monotonic()
        if statistics.active == 0 or now >= self._next_publication:
            self._next_publication = now + self._periods.statistics
            attempt("publishing", lambda: self._publish(statistics))

    @property
    def _is_watching(self) -> bool:
        """Whether the worker owes news: it computes, or it loads."""
        return not self._restart.is_planned and (self._streams.is_busy or not self._worker.is_ready)

    def _look_after_worker(self) -> None:
        now = time.monotonic()
        with self._lock:
            if not self._is_watching or self._worker.silence.seconds_to_look(now) > 0:
                return
            reason = self._worker.silence.look(now)
        if reason:
            self._worker.kill()
            self._lose_worker(reason)
        elif self._worker.silence.is_suspect:
            self._delivery.turn_away(EngineUnavailable(_NO_SIGN_OF_LIFE))

    def _lose_worker(self, reason: str) -> None:
        with self._lock:
            self._restart.plan()
            self._held.clear()
        log.error("the engine is lost: %s", reason or "its process has ended")
        self._delivery.fail_all(EngineFailed(FAILED))  # Before the process ends: one that is stuck takes seconds.
        self._relay.later(functools.partial(attempt, "ending", self._worker.end))

    def _restart_if_due(self) -> None:
        if not self._restart.is_due():
            return
        try:
            worker = self._launch()
        except Exception:  # No memory or no processes left, or anything else: later, perhaps.
            log.exception("starting the engine's process")
            self._restart.plan()
            return
        worker.expect_ready(self._load_seconds)
        with self._lock:
            self._worker = worker
            self._restart.has_begun()
