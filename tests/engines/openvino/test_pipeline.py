"""engines/openvino/pipeline.py and grammar.py over stand-ins for the library: what it does with what comes back.

What the real library does is in tests/engines/worker/test_pipeline_contract.py.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import openvino_genai
import pytest

from bls.errors import BadRequest, Busy, EngineFailed
from engines.openvino import pipeline as module
from engines.openvino.grammar import GrammarCheck
from engines.openvino.pipeline import OpenVinoPipeline
from engines.worker.generation import Generation, Guide
from engines.worker.parameters import EngineParameters
from engines.worker.scheduler import Scheduler

MANIFEST = SimpleNamespace(context_tokens=64, vocab_size=100)
GUIDE = Guide("regex", "[0-9]")
ANSWER = SimpleNamespace(tokens=[[7]])


class Library:
    """ContinuousBatchingPipeline: each request gets its prompt's last id + 1, except those that begin with 66."""

    made = 0

    def __init__(self, *arguments):
        Library.made += 1
        self.running = []

    def get_tokenizer(self):
        return None

    def get_metrics(self):
        return SimpleNamespace(cache_usage=0.0)

    def add_request(self, key, prompt, config):
        ids = np.array(prompt.data).reshape(-1).tolist()
        handle = Handle(ids, config.max_new_tokens)
        self.running.append(handle)
        return handle

    def step(self):
        for handle in self.running:
            handle.step()


class Handle:
    def __init__(self, prompt, max_tokens):
        self.prompt, self.left, self.status, self.outputs = prompt, max_tokens, "RUNNING", []

    def step(self):
        if self.prompt[0] == 66:
            self.status = "IGNORED"
        elif self.status == "RUNNING":
            self.left -= 1
            self.status = "RUNNING" if self.left else "FINISHED"
            reason = SimpleNamespace(name="NONE" if self.left else "LENGTH")
            self.outputs.append(SimpleNamespace(generated_ids=[7], generated_log_probs=[-1.0], finish_reason=reason))

    def can_read(self):
        return bool(self.outputs)

    def read(self):
        return {0: self.outputs.pop(0)}

    def get_status(self):
        return SimpleNamespace(name=self.status)


class Check:
    """Keeps 1 byte a guide."""

    def __init__(self, tokenizer, vocab_size):
        self.kept_bytes = 0

    def check(self, guide):
        self.kept_bytes += 1


@pytest.fixture
def scheduler(monkeypatch):
    monkeypatch.setattr(openvino_genai, "ContinuousBatchingPipeline", Library)
    monkeypatch.setattr(module, "GrammarCheck", Check)
    monkeypatch.setattr(module, "readable_model", lambda manifest: nullcontext("model.gguf"))
    monkeypatch.setattr(module, "RENEW_GRAMMAR_BYTES", 2)
    monkeypatch.setattr(module, "MAX_GRAMMAR_BYTES", 3)
    monkeypatch.setattr(Library, "made", 0)
    return Scheduler(OpenVinoPipeline(MANIFEST, EngineParameters(in_flight=True)), 4)


def add(scheduler, key, first=1, max_tokens=2, guide=None):
    scheduler.add(key, Generation((first,), max_tokens, frozenset({2}), guide=guide))


def run(scheduler):
    events = []
    while scheduler.is_busy:
        events += scheduler.step()
    return events


def ends(events):
    return {event.key: event.error or event.ended for event in events if event.is_last}


def test_a_request_that_openvino_drops_fails_alone(scheduler):
    for key, first in enumerate((1, 66, 1)):
        add(scheduler, key, first)
    ended = ends(run(scheduler))
    assert (ended[0], ended[2]) == ("length", "length")
    assert isinstance(ended[1], EngineFailed)
    assert str(ended[1]) == "[INTERNAL] the engine dropped the request (status IGNORED)"
    add(scheduler, 3)
    assert ends(run(scheduler)) == {3: "length"}


def test_the_pipeline_is_made_anew_once_its_grammars_are_many_and_nothing_runs(scheduler):
    add(scheduler, 0, max_tokens=9)
    for key in (1, 2):
        add(scheduler, key, guide=GUIDE)
    while not scheduler.step() or scheduler.statistics().active:
        assert Library.made == 1
    run(scheduler)
    assert Library.made == 2
    add(scheduler, 3, guide=GUIDE)
    assert ends(run(scheduler)) == {3: "length"}
    assert Library.made == 2


def test_no_more_guides_are_taken_while_their_memory_is_full(scheduler):
    for key in range(3):
        add(scheduler, key, max_tokens=9, guide=GUIDE)
    add(scheduler, 3, guide=GUIDE)
    ended = ends(run(scheduler))
    assert [ended[key] for key in range(3)] == ["length"] * 3
    assert isinstance(ended[3], Busy)
    add(scheduler, 4, guide=GUIDE)
    assert ends(run(scheduler)) == {4: "length"}


def test_the_check_counts_by_how_much_the_process_grows():
    kept = []
    check = GrammarCheck.__new__(GrammarCheck)
    check.kept_bytes = 0
    check._pipeline = SimpleNamespace(generate=lambda *arguments: kept.append(np.ones(64 * 2**20, np.uint8)) or ANSWER)
    check.check(GUIDE)
    assert 60 * 2**20 < check.kept_bytes < 100 * 2**20
    check._pipeline = SimpleNamespace(generate=lambda *arguments: kept.clear() or ANSWER)
    check.check(GUIDE)
    assert check.kept_bytes > 60 * 2**20


def test_what_openvino_refuses_is_said_without_its_source_file(scheduler, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("Exception from src/core.cpp:7:\nmax_new_tokens is too large")

    monkeypatch.setattr(Library, "add_request", refuse)
    add(scheduler, 0)
    ended = ends(run(scheduler))
    assert isinstance(ended[0], BadRequest)
    assert str(ended[0]) == "[BAD_REQUEST] refused by OpenVINO: max_new_tokens is too large"
