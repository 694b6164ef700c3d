"""Grammars that are small to read and endless to compile, in the process that tries them, with the real library."""

from __future__ import annotations

import queue

import pytest

from bls import manifest
from bls.errors import BadRequest, RouterError
from bls.paths import ROOT
from engines.triton import grammar_lanes
from engines.triton.grammars import Grammars
from engines.worker.generation import Guide
from engines.worker.grammar_process import GrammarStart
from engines.worker.parameters import EngineParameters
from tests.engines.openvino.grammars import ENDLESS, HEAVY, LONGEST, ORDINARY

BUILT = ROOT / "engines" / "built" / "small"
TRIAL = "engines.openvino.grammar:GrammarTrial"
WAIT_SECONDS = 170
PARAMETERS = EngineParameters(in_flight=True)

pytestmark = [
    pytest.mark.skipif(not (BUILT / manifest.FILE_NAME).exists(), reason="no engine is built: scripts/install"),
]


@pytest.fixture(scope="module")
def judge():
    """`judge(guide)` is what the gate says of a guide in the end."""
    verdicts: queue.SimpleQueue[tuple[Guide, RouterError | None]] = queue.SimpleQueue()
    start = GrammarStart(TRIAL, BUILT, PARAMETERS)
    gate: Grammars = grammar_lanes.of(start)(lambda guide, error: verdicts.put((guide, error)))

    def judge(guide):
        gate.ask(guide)
        judged, error = verdicts.get(timeout=WAIT_SECONDS)
        assert judged == guide
        return error

    yield judge
    gate.close()


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONGEST else n for n in ENDLESS])
def test_a_grammar_that_is_endless_or_empty_is_refused(judge, name):
    try:
        error = judge(Guide(*ENDLESS[name]))
    except BadRequest as refused:  # By its form, before any library sees it.
        error = refused
    assert isinstance(error, BadRequest)
    assert error.reason.startswith("guided_decoding_guide ")


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_grammar_is_judged_and_the_next_one_too(judge, name):
    error = judge(Guide(*HEAVY[name]))
    assert error is None or error.reason.startswith("guided_decoding_guide ")
    assert judge(Guide("regex", "[a-z]{1,3}")) is None


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_grammar_passes(judge, name):
    assert judge(Guide(*ORDINARY[name])) is None
