"""engines/triton/relay.py in an engine whose clients don't take their responses: what the other clients get."""

import threading

import pytest

from bls.errors import EngineFailed
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine
from tests.engines.triton.test_engine import OUTPUTS, breaks, held, request
from tests.fake_pipeline import CountingPipeline, RememberingSender, ThreadWorker
from tests.waiting import eventually


class StuckSender(RememberingSender):
    """A caller that takes nothing until it is let."""

    def __init__(self):
        super().__init__()
        self.asked, self.let = threading.Event(), threading.Event()

    def send(self, tensors):
        self._wait()
        super().send(tensors)

    def finish(self, tensors=None, error=None):
        self._wait()
        super().finish(tensors, error)

    def _wait(self):
        self.asked.set()
        self.let.wait()


@pytest.fixture
def start():
    """`start(prepare=...)` starts an engine over counting pipelines."""
    engines, stuck = [], []

    def make(prepare=lambda pipeline: None):
        def launch():
            pipeline = CountingPipeline()
            prepare(pipeline)
            return ThreadWorker(pipeline)

        engines.append(Engine(launch, Pace(tokens=2)))
        return engines[-1]

    def submit(engine, engine_request, sender):
        if isinstance(sender, StuckSender):
            stuck.append(sender)
        engine.submit("", engine_request, OUTPUTS, sender)
        return sender

    make.submit = submit
    yield make
    for sender in stuck:
        sender.let.set()
    for engine in engines:
        engine.close()


def test_a_caller_that_takes_nothing_holds_up_its_own_stream_alone(start):
    engine = start()
    for _ in range(3):  # Each keeps a thread for itself.
        stuck = start.submit(engine, request(10, max_tokens=20), StuckSender())
        assert stuck.asked.wait(10)
        assert start.submit(engine, request(20), RememberingSender()).ids() == [21, 22, 23, 24]
        assert stuck.ends == 0


def test_a_caller_that_takes_its_responses_late_gets_all_of_them_in_their_order_and_one_end(start):
    engine = start()
    late = start.submit(engine, request(10, max_tokens=20), StuckSender())
    assert late.asked.wait(10)
    assert start.submit(engine, request(20), RememberingSender()).ids() == [21, 22, 23, 24]
    late.let.set()
    assert late.ids() == list(range(11, 31))
    assert late.ends == 1


def test_what_came_in_one_step_with_a_response_that_is_not_taken_is_delivered(start):
    pipelines = []

    def prepare(pipeline):
        held(pipeline)
        pipelines.append(pipeline)

    engine = start(prepare)
    stuck = start.submit(engine, request(10, max_tokens=1), StuckSender())
    others = [start.submit(engine, request(number), RememberingSender()) for number in (20, 30, 40)]
    pipelines[0].gate.set()
    assert [other.ids()[0] for other in others] == [21, 31, 41]
    assert stuck.ends == 0


def test_a_caller_that_takes_nothing_keeps_no_other_from_hearing_that_the_worker_is_lost(start):
    engine = start(breaks(RuntimeError("out of luck")))
    stuck = start.submit(engine, request(10, max_tokens=10_000), StuckSender())
    assert stuck.asked.wait(10)
    other = start.submit(engine, request(666), RememberingSender())
    assert other.ended.wait(10)
    assert isinstance(other.error, EngineFailed)


def deliveries():
    return sum(thread.name == "delivery" for thread in threading.enumerate())


def test_the_thread_of_a_stream_ends_with_it(start):
    engine = start()
    late = start.submit(engine, request(10, max_tokens=20), StuckSender())
    assert late.asked.wait(10)
    assert start.submit(engine, request(20), RememberingSender()).ids()
    assert deliveries() > 1
    late.let.set()
    assert late.ended.wait(10)
    assert eventually(lambda: deliveries() == 1, 60)


def test_a_stream_that_was_held_up_goes_on_piece_by_piece(start):
    steps = threading.Semaphore(1)

    def prepare(pipeline):
        pipeline.before_step = steps.acquire

    engine = start(prepare)
    late = start.submit(engine, request(10, max_tokens=20), StuckSender())
    assert late.asked.wait(10)
    assert eventually(lambda: deliveries() > 1, 60)
    late.let.set()
    assert eventually(lambda: deliveries() == 1, 60)
    before = len(late.responses)
    steps.release(6)
    assert eventually(lambda: len(late.responses) > before, 60)
    assert late.ends == 0
    steps.release(1000)
    assert late.ids() == list(range(11, 31))
    assert late.ends == 1
