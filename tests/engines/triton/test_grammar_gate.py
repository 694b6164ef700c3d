"""engines/triton/grammar_gate.py over processes that are threads: what is asked once, who waits, what is forgotten."""

from __future__ import annotations

import multiprocessing
import queue
import signal
import threading

import pytest

from bls.errors import BadRequest, Busy
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine
from engines.triton.grammar_gate import MAX_WAITING, GrammarGate
from engines.triton.tensors import EngineRequest
from engines.worker.generation import Generation, Guide
from engines.worker.grammar_process import Loaded, Verdict
from tests.fake_pipeline import CountingPipeline, RememberingSender, ThreadWorker, hang_up

FINE, WRONG, DEADLY = Guide("regex", "fine"), Guide("regex", "wrong"), Guide("regex", "deadly")
OUTPUTS = frozenset({"output_ids", "sequence_length"})


class Process:
    """Refuses `wrong`, dies of `deadly`, and answers when `goes_on` is set."""

    def __init__(self, goes_on, tried):
        self.connection, self._theirs = multiprocessing.Pipe()
        self._goes_on = goes_on
        self._tried = tried
        self._exit_code = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def end(self):
        self.connection.close()
        return self._exit_code

    def interrupt(self):
        hang_up(self._theirs)

    def _serve(self):
        self._theirs.send(Loaded())
        try:
            while True:
                guide = self._theirs.recv()
                self._tried.append(guide.text)
                self._goes_on.wait(10)
                if guide.text == "deadly":
                    self._exit_code = -signal.SIGPROF
                    hang_up(self._theirs)
                self._theirs.send(Verdict("it is wrong" if guide.text == "wrong" else ""))
        except (EOFError, OSError):
            pass


class Bench:
    def __init__(self):
        self.verdicts = queue.SimpleQueue()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.tried = []
        self.processes = []
        self.before_launch = lambda: None
        self.gate = GrammarGate(self.launch, 2.0, lambda guide, error: self.verdicts.put((guide, error)))

    def launch(self):
        self.before_launch()
        self.processes.append(Process(self.goes_on, self.tried))
        return self.processes[-1]

    def judge(self, guide):
        self.gate.ask(guide)
        return self.verdicts.get(timeout=10)


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.goes_on.set()
    made.gate.close()


def test_a_grammar_is_tried_once_and_then_known(bench):
    assert not bench.gate.admits(FINE)
    assert bench.judge(FINE) == (FINE, None)
    assert bench.gate.admits(FINE)
    assert bench.tried == ["fine"]


def test_a_wrong_grammar_is_refused_with_its_reason_from_then_on(bench):
    _, error = bench.judge(WRONG)
    assert str(error) == "[BAD_REQUEST] it is wrong"
    with pytest.raises(BadRequest, match="it is wrong"):
        bench.gate.admits(WRONG)


def test_a_grammar_that_is_too_much_costs_its_process_alone(bench):
    _, error = bench.judge(DEADLY)
    assert str(error) == (
        "[BAD_REQUEST] guided_decoding_guide takes more than 2 s of CPU time to compile (max_grammar_cpu_ms)"
    )
    with pytest.raises(BadRequest, match="2 s of CPU time"):
        bench.gate.admits(DEADLY)
    assert bench.judge(FINE) == (FINE, None)
    assert len(bench.processes) == 2


def test_only_so_many_grammars_wait_and_none_of_them_twice(bench):
    bench.goes_on.clear()
    guides = [Guide("regex", str(number)) for number in range(MAX_WAITING)]
    for guide in guides:
        bench.gate.ask(guide)
        bench.gate.ask(guide)
    with pytest.raises(Busy, match="grammars are waiting to be compiled"):
        bench.gate.ask(FINE)
    bench.goes_on.set()
    assert [bench.verdicts.get(timeout=10) for _ in guides] == [(guide, None) for guide in guides]
    assert bench.tried == [guide.text for guide in guides]


def test_a_process_that_cannot_be_started_says_nothing_of_the_grammar(bench):
    def no_memory():
        raise OSError("no memory")

    bench.before_launch = no_memory
    _, error = bench.judge(FINE)
    assert isinstance(error, Busy)
    bench.before_launch = lambda: None
    assert not bench.gate.admits(FINE)
    assert bench.judge(FINE) == (FINE, None)


def test_a_gate_that_was_never_asked_closes(bench):
    assert bench.processes == []


def test_a_gate_closes_while_a_grammar_is_tried(bench):
    bench.goes_on.clear()
    bench.gate.ask(FINE)
    closing = threading.Thread(target=bench.gate.close)
    closing.start()
    bench.goes_on.set()
    closing.join(10)
    assert not closing.is_alive()


class ByHand:
    """A gate that a test opens."""

    def __init__(self, decided):
        self.decided = decided
        self.asked = []

    def admits(self, guide):
        return False

    def ask(self, guide):
        self.asked.append(guide)

    def close(self):
        pass


@pytest.fixture
def gated():
    """An engine, its gate, and how a request with a grammar is submitted."""
    gates = []

    def make(decided):
        gates.append(ByHand(decided))
        return gates[-1]

    pipeline = CountingPipeline()
    engine = Engine(lambda: ThreadWorker(pipeline), Pace(), grammars=make)

    def submit(guide, request_id=""):
        sender = RememberingSender()
        generation = Generation((10,), 2, frozenset({10_000}), guide=guide)
        engine.submit(request_id, EngineRequest(generation, True, True), OUTPUTS, sender)
        return sender

    yield engine, gates[0], submit, pipeline
    engine.close()


def test_a_request_waits_for_its_grammar_and_others_do_not(gated):
    _, gate, submit, _ = gated
    waiting = submit(FINE)
    assert submit(None).ids() == [11, 12]
    assert not waiting.ended.is_set()
    gate.decided(FINE, None)
    assert waiting.ids() == [11, 12]


def test_a_request_with_a_wrong_grammar_never_reaches_the_worker(gated):
    _, gate, submit, pipeline = gated
    refused = submit(WRONG)
    gate.decided(WRONG, BadRequest("it is wrong"))
    assert refused.ended.wait(10)
    assert (refused.ends, str(refused.error)) == (1, "[BAD_REQUEST] it is wrong")
    assert submit(None).ids() == [11, 12]
    assert {key for batch in pipeline.batches for key in batch} == {1}


def test_a_request_that_is_stopped_before_its_grammar_is_known_ends_at_once(gated):
    engine, gate, submit, pipeline = gated
    stopped = submit(FINE, "a")
    engine.stop("a")
    assert stopped.ids() == []
    gate.decided(FINE, None)
    assert submit(None).ids() == [11, 12]
    assert len(engine._streams) == 0
    assert {key for batch in pipeline.batches for key in batch} == {1}


def test_all_that_wait_for_one_grammar_begin_with_its_verdict(gated):
    _, gate, submit, _ = gated
    senders = [submit(FINE) for _ in range(3)]
    gate.decided(FINE, None)
    assert [sender.ids() for sender in senders] == [[11, 12]] * 3
