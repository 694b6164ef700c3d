"""engines/triton/engine.py with workers that are threads: what clients get, and what happens when a worker is lost."""

import dataclasses
import threading

import pytest

from bls.errors import BadRequest, Busy, EngineFailed, EngineUnavailable
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine, Periods
from engines.triton.tensors import EngineRequest
from engines.worker.generation import Generation
from engines.worker.worker import Failed
from tests.fake_pipeline import CountingPipeline, RememberingSender, ThreadWorker
from tests.waiting import eventually

OUTPUTS = frozenset({"output_ids", "sequence_length"})
NO_END = frozenset({10_000})


def request(*prompt, max_tokens=4, streaming=True, exclude_input=True, **fields):
    generation = Generation(prompt or (1,), max_tokens, fields.pop("end_ids", NO_END), **fields)
    return EngineRequest(generation, streaming, exclude_input)


class Bench:
    """An engine over counting pipelines, one for each worker that is started."""

    def __init__(self, **options):
        self.pipelines = []
        self.published = []
        self.prepare = options.pop("prepare", lambda pipeline: None)
        options.setdefault("periods", Periods(cancellation=0.01, statistics=0.01))
        self.before_launch = lambda: None
        options.setdefault("publish", self.published.append)
        self.engine = Engine(self.launch, options.pop("pace", Pace()), **options)

    def launch(self):
        self.before_launch()
        pipeline = CountingPipeline()
        self.prepare(pipeline)
        self.pipelines.append(pipeline)
        return ThreadWorker(pipeline)

    def submit(self, engine_request, request_id="", outputs=OUTPUTS):
        sender = RememberingSender()
        self.engine.submit(request_id, engine_request, outputs, sender)
        return sender


@pytest.fixture
def bench():
    made = []

    def make(**options):
        made.append(Bench(**options))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def held(pipeline):
    """Makes the pipeline's steps wait for an event, so that a test can act while a request runs."""
    gate = threading.Event()
    pipeline.before_step = gate.wait
    pipeline.gate = gate


def test_a_stream_gets_all_ids_and_one_end(bench):
    sender = bench().submit(request(10))
    assert sender.ids() == [11, 12, 13, 14]
    assert (sender.ends, sender.error) == (1, None)


def test_a_request_that_is_not_streamed_gets_one_response(bench):
    sender = bench().submit(request(10, streaming=False))
    assert sender.ids() == [11, 12, 13, 14]
    assert len(sender.responses) == 1
    assert sender.responses[0]["output_ids"].shape == (1, 1, 4)
    assert sender.responses[0]["sequence_length"].tolist() == [[4]]


def test_the_first_ids_leave_at_once_and_the_last_ride_with_the_end(bench):
    one = bench(pace=Pace(tokens=100), prepare=held)
    sender = one.submit(request(10))
    pipeline = one.pipelines[0]
    pipeline.before_step = lambda: pipeline.batches and sender.got_one.wait(10)
    pipeline.gate.set()
    assert sender.ids() == [11, 12, 13, 14]
    assert [tensors["output_ids"].size for tensors in sender.responses] == [1, 3]


def test_a_stream_of_the_end_id_alone_has_a_response_without_ids(bench):
    sender = bench().submit(request(10, end_ids=frozenset({11})))
    assert sender.ids() == []
    assert sender.responses[0]["output_ids"].shape == (1, 1, 0)
    assert sender.responses[0]["sequence_length"].tolist() == [[0]]


@pytest.mark.parametrize("streaming", [True, False])
def test_the_prompt_comes_first_and_once_if_it_is_not_excluded(bench, streaming):
    sender = bench().submit(request(8, 10, streaming=streaming, exclude_input=False))
    assert sender.ids() == [8, 10, 11, 12, 13, 14]
    assert sender.responses[0]["output_ids"].reshape(-1).tolist()[:3] == [8, 10, 11]


def test_only_requested_outputs_are_built(bench):
    sender = bench().submit(request(), outputs=frozenset({"sequence_length"}))
    assert sender.ended.wait(10)
    assert {name for tensors in sender.responses for name in tensors} == {"sequence_length"}


def test_log_probs_are_of_the_new_ids_and_their_sum_goes_on(bench):
    outputs = OUTPUTS | {"cum_log_probs", "output_log_probs"}
    sender = bench().submit(request(10, log_probs=True, max_tokens=2, exclude_input=False), outputs=outputs)
    assert sender.ids() == [10, 11, 12]
    each = [value for tensors in sender.responses for value in tensors["output_log_probs"].reshape(-1).tolist()]
    assert each == pytest.approx([-1.1, -1.2])
    assert sender.responses[-1]["cum_log_probs"].tolist() == [pytest.approx([-2.3])]


def test_a_running_id_is_refused_a_second_time_and_free_afterwards(bench):
    one = bench(prepare=held)
    first = one.submit(request(), "same")
    with pytest.raises(BadRequest, match="id 'same' is running already"):
        one.submit(request(), "same")
    one.pipelines[0].gate.set()
    first.ids()
    assert one.submit(request(10), "same").ids() == [11, 12, 13, 14]


def test_requests_without_an_id_run_side_by_side(bench):
    one = bench(prepare=held)
    senders = [one.submit(request(10)), one.submit(request(20))]
    one.pipelines[0].gate.set()
    assert [sender.ids()[0] for sender in senders] == [11, 21]


def test_stop_ends_its_own_request_alone(bench):
    one = bench(prepare=held)
    stopped, other = one.submit(request(10, max_tokens=50), "a"), one.submit(request(20), "b")
    one.engine.stop("a")
    assert len(stopped.ids()) < 50
    one.pipelines[0].gate.set()
    assert (stopped.ends, stopped.error) == (1, None)
    assert other.ids() == [21, 22, 23, 24]


def test_stopping_what_is_not_running_is_no_error(bench):
    bench().engine.stop("nobody")


def test_a_client_that_left_is_told_so_once_and_its_cache_is_free(bench):
    one = bench(prepare=held)
    sender = one.submit(request(10, max_tokens=20))
    sender.left = True
    assert sender.ended.wait(10)
    one.pipelines[0].gate.set()
    assert (sender.ends, str(sender.error)) == (1, "[CANCELLED] the client left")
    one.submit(request()).ids()
    one.engine.close()
    assert one.pipelines[0].running == {}


def test_a_full_queue_refuses_the_next_request(bench):
    one = bench(prepare=held, max_waiting=2)
    senders = [one.submit(request()) for _ in range(6)]
    with pytest.raises(Busy, match="2 requests are waiting"):
        one.submit(request())
    one.pipelines[0].gate.set()
    for sender in senders:
        sender.ids()


def breaks(error):
    def prepare(pipeline):
        def before_step():
            if any(generation.prompt[0] == 666 for generation in pipeline.running.values()):
                raise error

        pipeline.before_step = before_step

    return prepare


def test_a_step_that_fails_fails_its_requests_and_the_next_ones_are_served(bench):
    one = bench(prepare=breaks(RuntimeError("out of luck")))
    sender = one.submit(request(666))
    assert sender.ended.wait(10)
    assert isinstance(sender.error, EngineFailed)
    assert str(sender.error) == "[INTERNAL] the engine failed; the server's log says why"
    assert one.submit_when_back(request(10)).ids() == [11, 12, 13, 14]
    assert len(one.pipelines) == 2


def test_why_a_step_failed_is_in_the_log_alone(bench, caplog):
    one = bench(prepare=breaks(RuntimeError("Exception from src/core.cpp:7:\n/opt/lib/core.so is out of luck")))
    sender = one.submit(request(666))
    assert sender.ended.wait(10)
    assert "/" not in str(sender.error)
    assert "/opt/lib/core.so is out of luck" in caplog.text


def fails_at_first(count, act=lambda *arguments, **named: None):
    """A function that raises `count` times before it does what it should, with its number of calls."""

    def call(*arguments, **named):
        call.calls += 1
        if call.calls <= count:
            raise ValueError("a bug")
        return act(*arguments, **named)

    call.calls = 0
    return call


def test_a_worker_that_cannot_be_started_is_tried_again_with_growing_delays(bench, monkeypatch):
    one = bench(prepare=breaks(RuntimeError("out of luck")))
    delays = []
    restart = one.engine._restart
    plan = restart.plan

    def remember():
        delays.append(restart._seconds)
        restart._seconds = 0.01  # So that the test need not wait.
        plan()
        restart._seconds = 2 * delays[-1]

    monkeypatch.setattr(restart, "plan", remember)
    one.before_launch = fails_at_first(3)
    assert one.submit(request(666)).ended.wait(10)
    assert one.submit_when_back(request(10)).ids() == [11, 12, 13, 14]
    assert one.before_launch.calls == 4
    assert delays == [0.1, 0.2, 0.4, 0.8]


def test_figures_that_cannot_be_published_leave_streams_alone(bench):
    publish = fails_at_first(1_000_000)
    one = bench(publish=publish)
    assert one.submit(request(10)).ids() == [11, 12, 13, 14]
    assert one.submit(request(20)).ids() == [21, 22, 23, 24]
    assert publish.calls > 1


def test_a_client_of_whom_nobody_can_tell_whether_it_left_gets_its_stream(bench):
    one = bench(prepare=held)
    sender = RememberingSender()
    sender.is_cancelled = fails_at_first(2, lambda: asked_often.set() or False)
    asked_often = threading.Event()
    one.engine.submit("", request(10), OUTPUTS, sender)
    assert asked_often.wait(10)
    one.pipelines[0].gate.set()
    assert sender.ids() == [11, 12, 13, 14]
    assert (sender.ends, sender.error) == (1, None)


def test_a_response_that_cannot_be_made_ends_its_own_stream_with_an_error(bench):
    one = bench(prepare=held)
    broken = RememberingSender()
    broken.finish = fails_at_first(1, broken.finish)
    one.engine.submit("", request(10, streaming=False), OUTPUTS, broken)
    other = one.submit(request(20))
    one.pipelines[0].gate.set()
    assert broken.ended.wait(10)
    assert (broken.ends, str(broken.error)) == (1, "[INTERNAL] the engine failed; the server's log says why")
    assert other.ids() == [21, 22, 23, 24]


def test_news_that_cannot_be_taken_in_end_their_own_stream_alone(bench, monkeypatch):
    one = bench(prepare=held)
    broken, other = one.submit(request(10, max_tokens=20)), one.submit(request(20))
    monkeypatch.setattr(one.engine._streams.all()[0][1], "add", fails_at_first(1_000_000))
    one.pipelines[0].gate.set()
    assert broken.ended.wait(10)
    assert isinstance(broken.error, EngineFailed)
    assert other.ids() == [21, 22, 23, 24]


@pytest.mark.parametrize("part", ["_timeout", "_read_news", "_look_after_worker", "_restart_if_due"])
def test_a_bug_in_one_turn_of_the_delivery_is_logged_and_the_next_turn_goes_on(bench, monkeypatch, caplog, part):
    one = bench(prepare=held)
    faulty = fails_at_first(2, getattr(one.engine, part))
    monkeypatch.setattr(one.engine, part, faulty)
    one.pipelines[0].gate.set()
    assert one.submit(request(10)).ids() == [11, 12, 13, 14]
    assert eventually(lambda: "a bug" in caplog.text)  # the answer may end before the turn does
    assert one.submit(request(20)).ids() == [21, 22, 23, 24]
    assert one.submit(request(30)).ids() == [31, 32, 33, 34]
    assert one.engine._relay._thread.is_alive()


def test_news_that_cannot_be_read_cost_the_worker(bench, monkeypatch):
    one = bench(prepare=held)
    sender = one.submit(request(10))
    monkeypatch.setattr(one.engine._worker.connection, "recv", fails_at_first(1_000_000))
    one.prepare = lambda pipeline: None
    one.pipelines[0].gate.set()
    assert sender.ended.wait(10)
    assert isinstance(sender.error, EngineFailed)
    assert one.submit_when_back(request(10)).ids() == [11, 12, 13, 14]


def test_a_worker_that_cannot_be_ended_is_given_up(bench, monkeypatch):
    one = bench(prepare=breaks(RuntimeError("out of luck")))
    monkeypatch.setattr(one.engine._worker, "close", fails_at_first(1_000_000))
    sender = one.submit(request(666))
    assert sender.ended.wait(10)
    assert isinstance(sender.error, EngineFailed)
    assert one.submit_when_back(request(10)).ids() == [11, 12, 13, 14]


def _submit_when_back(self, engine_request):
    for _ in range(1000):
        try:
            return self.submit(engine_request)
        except EngineUnavailable:
            threading.Event().wait(0.01)
    raise AssertionError("the engine never came back")


Bench.submit_when_back = _submit_when_back


def test_closing_ends_what_is_running(bench):
    one = bench(prepare=held)
    sender = one.submit(request(max_tokens=20))
    closing = threading.Thread(target=one.engine.close)
    closing.start()
    assert sender.ended.wait(10)
    one.pipelines[0].gate.set()
    closing.join(10)
    assert not closing.is_alive()
    assert (sender.ends, str(sender.error)) == (1, "[UNAVAILABLE] the model is being unloaded")


def test_the_last_figures_that_are_published_are_those_of_an_idle_engine(bench):
    one = bench()
    one.submit(request()).ids()
    one.engine.close()
    assert (one.published[-1].active, one.published[-1].used_blocks) == (0, 0)


def test_a_worker_that_can_not_load_stops_the_load_with_its_reason():
    class Unloadable(ThreadWorker):
        def _serve(self, connection):
            connection.send(Failed("no such file"))

    with pytest.raises(EngineFailed, match="no such file"):
        Engine(lambda: Unloadable(CountingPipeline()), Pace())


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        (OUTPUTS, {"output_ids": [[[]]], "sequence_length": [[-1]]}),
        (frozenset({"output_ids"}), {"output_ids": [[[-1]]]}),
    ],
    ids=["a_length", "an_id"],
)
def test_a_caller_that_cannot_receive_errors_after_data_gets_minus_one(bench, outputs, told):
    one = bench(prepare=held)
    asked = dataclasses.replace(request(10, max_tokens=20), errors_as_data=True)
    early, late = (one.submit(asked, outputs=outputs) for _ in range(2))
    for sender in (early, late):
        sender.left = sender is early
    assert early.ended.wait(10)
    assert str(early.error) == "[CANCELLED] the client left"
    pipeline = one.pipelines[0]
    late_key = 1
    pipeline.before_step = lambda: any(late_key in batch for batch in pipeline.batches) and late.ended.wait(10)
    pipeline.gate.set()
    assert late.got_one.wait(10)
    late.left = True
    assert late.ended.wait(10)
    assert late.error is None
    assert {name: array.tolist() for name, array in late.responses[-1].items()} == told
