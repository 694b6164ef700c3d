"""engines/triton/engine.py over a worker that stops moving: its callers are answered, and another one is started."""

from __future__ import annotations

import threading

import pytest

from bls.errors import Busy, EngineFailed, EngineUnavailable
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine, Periods
from engines.triton.silence import LOOK_SECONDS, Patience, Silence
from engines.triton.tensors import EngineRequest
from engines.worker import worker
from engines.worker.generation import Generation
from tests.fake_pipeline import CountingPipeline, RememberingSender, ThreadWorker, hang_up

OUTPUTS = frozenset({"output_ids", "sequence_length"})
NO_END = frozenset({10_000})
FOR_EVER = Patience(frozen=0, step=0)
PID = 4_000_000  # Of no process.


class Frozen(ThreadWorker):
    """A worker whose steps wait until it is let go, or for ever where it is killed."""

    def __init__(self, is_frozen):
        self.let_go = threading.Event()
        self.stands_still = threading.Event()
        self.is_killed = False
        self.pipeline = CountingPipeline()
        if is_frozen:
            self.pipeline.before_step = self._freeze
        super().__init__(self.pipeline)

    def _freeze(self):
        self.stands_still.set()
        self.let_go.wait(60)
        if self.is_killed:
            raise BrokenPipeError

    def _serve(self, connection):
        connection.send(worker.Ready(self.scheduler.statistics(), PID))
        worker.serve(connection, self.scheduler)
        hang_up(connection)


class Bench:
    """An engine whose first worker is frozen; `cpu` is what the processes say of it."""

    def __init__(self, patience, cpu=lambda: 1.0):
        self.workers = []
        self.killed = []
        self._cpu = cpu
        periods = Periods(cancellation=0.01, statistics=0.01)
        self.engine = Engine(self._launch, Pace(), periods, patience=patience, processes=self, max_waiting=2)

    def _launch(self):
        self.workers.append(Frozen(is_frozen=not self.workers))
        return self.workers[-1]

    def cpu_seconds(self, pid):
        assert pid == PID
        return self._cpu()

    def kill(self, pid):
        self.killed.append(pid)
        self.workers[0].is_killed = True
        self.workers[0].let_go.set()

    def submit(self, request_id="", prompt=(10,), max_tokens=4):
        sender = RememberingSender()
        request = EngineRequest(Generation(prompt, max_tokens, NO_END), True, True)
        self.engine.submit(request_id, request, OUTPUTS, sender)
        return sender


@pytest.fixture
def bench():
    made = []

    def make(patience=FOR_EVER, **options):
        made.append(Bench(patience, **options))
        return made[-1]

    yield make
    for one in made:
        for each in one.workers:
            each.let_go.set()
        one.engine.close()


def test_a_stop_ends_the_stream_of_a_frozen_worker_with_what_it_has(bench):
    one = bench()
    sender = one.submit("a")
    one.engine.stop("a")
    assert sender.ids() == []
    assert (sender.ends, sender.error) == (1, None)


def test_what_a_worker_says_late_of_an_ended_stream_is_dropped_and_its_place_is_free(bench):
    one = bench()
    early = one.submit("a", max_tokens=50)
    one.engine.stop("a")
    assert early.ids() == []
    one.workers[0].let_go.set()
    assert one.submit("a").ids() == [11, 12, 13, 14]
    assert (early.ends, early.ids()) == (1, [])
    assert len(one.engine._streams) == 0
    assert not one.engine._streams.is_busy


def test_ended_streams_that_a_frozen_worker_still_holds_count_against_its_queue(bench):
    one = bench()
    one.submit("0")
    assert one.workers[0].stands_still.wait(10)  # before that it reads, and what is stopped has its end
    one.engine.stop("0")
    for number in range(1, 6):
        one.submit(str(number))
        one.engine.stop(str(number))
    with pytest.raises(Busy, match="2 requests are waiting"):
        one.submit("7")


def test_more_than_a_frozen_worker_can_read_holds_up_nobody(bench):
    one = bench()
    senders = [one.submit(str(number), prompt=tuple(range(1, 200_000))) for number in range(5)]
    for number in range(5):
        one.engine.stop(str(number))
    assert [sender.ids() for sender in senders] == [[]] * 5


def test_a_frozen_worker_is_killed_and_its_streams_end_with_an_error(bench, caplog):
    one = bench(Patience(frozen=0.5, step=0, suspicion=100))
    sender = one.submit()
    assert sender.ended.wait(20)
    assert isinstance(sender.error, EngineFailed)
    assert one.killed == [PID]
    assert "it is frozen: no news and no CPU time used for 0.5 s" in caplog.text
    assert submit_when_back(one).ids() == [11, 12, 13, 14]
    assert len(one.workers) == 2


def test_a_worker_that_computes_without_news_has_the_time_of_a_step(bench):
    used = iter(range(1_000_000))
    one = bench(Patience(frozen=0.5, step=2.0), cpu=lambda: float(next(used)))
    sender = one.submit()
    assert sender.ended.wait(20)
    assert isinstance(sender.error, EngineFailed)
    assert next(used) >= 2.0 / LOOK_SECONDS - 1


def test_who_has_no_token_is_turned_away_while_a_worker_seems_frozen(bench):
    one = bench(Patience(frozen=1000, step=0, suspicion=0.5))
    first = one.submit()
    assert first.ended.wait(20)
    assert str(first.error) == "[UNAVAILABLE] the engine gives no sign of life"
    with pytest.raises(EngineUnavailable, match="gives no sign of life"):
        one.submit()
    one.workers[0].let_go.set()
    assert submit_when_back(one).ids() == [11, 12, 13, 14]
    assert (first.ends, one.killed) == (1, [])


def test_a_stream_with_tokens_waits_for_a_worker_that_seems_frozen(bench):
    one = bench(Patience(frozen=1000, step=0, suspicion=0.5))
    pipeline = one.workers[0].pipeline
    pipeline.before_step = lambda: pipeline.batches and one.workers[0].let_go.wait(60)
    stream = one.submit()
    assert stream.got_one.wait(10)
    until(lambda: one.engine._worker.silence.is_suspect)
    one.workers[0].let_go.set()
    assert stream.ids() == [11, 12, 13, 14]
    assert (stream.ends, stream.error) == (1, None)


def submit_when_back(one):
    submitted = []

    def is_back():
        try:
            submitted.append(one.submit())
        except EngineUnavailable:
            return False
        return True

    until(is_back)
    return submitted[0]


def until(holds):
    for _ in range(2000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to hold")


def looked(silence, seconds, start=0.0):
    """The first word of a silence that is looked at every half second, and when it fell."""
    for number in range(1, int(seconds / LOOK_SECONDS) + 1):
        reason = silence.look(start + number * LOOK_SECONDS)
        if reason:
            return reason, number * LOOK_SECONDS
    return "", seconds


def test_news_begin_the_patience_anew():
    silence = Silence(Patience(frozen=10, step=0), lambda: 1.0, 0.0)
    assert looked(silence, 9.5) == ("", 9.5)
    silence.broken(9.5)
    assert looked(silence, 9.5, start=9.5) == ("", 9.5)


def test_a_machine_that_slept_kills_nobody_when_it_wakes():
    silence = Silence(Patience(frozen=10, step=120), lambda: 1.0, 0.0)
    assert silence.look(0.5) == ""
    assert silence.look(100_000.0) == ""
    assert not silence.is_suspect


def test_without_patience_for_frozen_workers_steps_alone_count():
    silence = Silence(Patience(frozen=0, step=3), lambda: 1.0, 0.0)
    reason, seconds = looked(silence, 10)
    assert (reason, seconds) == ("no news of a step for 3 s", 3.0)


def test_where_cpu_time_cannot_be_known_steps_alone_count():
    silence = Silence(Patience(frozen=1, step=3), lambda: None, 0.0)
    assert looked(silence, 10) == ("no news of a step for 3 s", 3.0)


def test_zero_is_patience_for_ever():
    assert looked(Silence(Patience(frozen=0, step=0), lambda: 1.0, 0.0), 10_000) == ("", 10_000)
