"""engines/triton/grammar_lanes.py over gates that a test opens: who waits for whom, and what is final."""

import pytest

from bls.errors import BadRequest, Busy
from engines.triton.grammar_gate import TooMuch
from engines.triton.grammar_lanes import GrammarLanes
from engines.worker.generation import Guide

LONG = Guide("regex", "a{1,500}")


class Gate:
    def __init__(self, decided):
        self.decided = decided
        self.verdicts = {}
        self.asked = []
        self.is_full = False

    def admits(self, guide):
        if isinstance(error := self.verdicts.get(guide), Exception):
            raise error
        return guide in self.verdicts

    def ask(self, guide):
        if self.is_full:
            raise Busy("8 grammars are waiting to be compiled")
        self.asked.append(guide)

    def decide(self, guide, error=None):
        self.verdicts[guide] = error
        self.decided(guide, error)

    def close(self):
        pass


class Bench:
    def __init__(self):
        self.told = []
        self.gates = []
        self.lanes = GrammarLanes(
            self._gate, self._gate, lambda guide, error: self.told.append((guide, str(error or "")))
        )
        self.quick, self.slow = self.gates

    def _gate(self, decided):
        self.gates.append(Gate(decided))
        return self.gates[-1]


@pytest.fixture
def bench():
    return Bench()


@pytest.mark.parametrize("error", [None, BadRequest("it is wrong"), Busy("the machine is too busy")])
def test_a_quick_verdict_is_final(bench, error):
    bench.lanes.ask(LONG)
    bench.quick.decide(LONG, error)
    assert bench.told == [(LONG, str(error or ""))]
    assert bench.slow.asked == []


def test_a_grammar_that_takes_long_is_given_more_time(bench):
    bench.lanes.ask(LONG)
    bench.quick.decide(LONG, TooMuch("more than 2 s"))
    assert bench.told == []
    assert not bench.lanes.admits(LONG)
    bench.slow.decide(LONG)
    assert bench.told == [(LONG, "")]
    assert bench.lanes.admits(LONG)


def test_one_that_takes_longer_than_that_is_refused_from_then_on(bench):
    bench.lanes.ask(LONG)
    bench.quick.decide(LONG, TooMuch("more than 2 s"))
    bench.slow.decide(LONG, TooMuch("more than 20 s"))
    assert bench.told == [(LONG, "[BAD_REQUEST] more than 20 s")]
    with pytest.raises(BadRequest, match="more than 20 s"):
        bench.lanes.admits(LONG)


def test_one_that_is_known_to_take_long_is_not_tried_in_short_time_again(bench):
    bench.quick.verdicts[LONG] = TooMuch("more than 2 s")
    bench.lanes.ask(LONG)
    assert (bench.quick.asked, bench.slow.asked) == ([], [LONG])


def test_where_too_many_take_long_the_next_one_is_told_to_come_again(bench):
    bench.slow.is_full = True
    bench.lanes.ask(LONG)
    bench.quick.decide(LONG, TooMuch("more than 2 s"))
    assert [(guide, text.partition(";")[0]) for guide, text in bench.told] == [
        (LONG, "[BUSY] 8 grammars are waiting to be compiled")
    ]
    with pytest.raises(Busy):
        bench.lanes.ask(LONG)
