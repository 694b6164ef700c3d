"""Grammars that compile at once do not wait behind those that take long.

Every unknown grammar has a short time first. One that needs more is tried again in a process of its own kind, with the
whole time and the least priority: a bounded length (`maxLength` 500) takes seconds and is common, and what is made to
take for ever then delays others of its kind alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bls.errors import Busy, RouterError
from engines.triton.grammar_gate import GrammarGate, TooMuch
from engines.triton.grammars import Decided, Grammars
from engines.worker.generation import Guide
from engines.worker.grammar_process import GrammarStart
from engines.worker.launch import GrammarProcess

QUICK_CPU_SECONDS = 2.0
_NICENESS = 19

Gate = Callable[[Decided], GrammarGate]


class GrammarLanes:
    """`decided` is called from the gates' threads with each verdict that was asked for: None, or what is wrong."""

    def __init__(self, quick: Gate, slow: Gate, decided: Decided) -> None:
        self._decided = decided
        self._quick = quick(self._take_quick)
        self._slow = slow(decided)

    def admits(self, guide: Guide) -> bool:
        """False while nobody knows: ask. Raises BadRequest for one that is wrong or too much."""
        try:
            return self._quick.admits(guide)
        except TooMuch:
            return self._slow.admits(guide)

    def ask(self, guide: Guide) -> None:
        """Has an unknown grammar tried out. Raises Busy where too many wait for that."""
        try:
            self._quick.admits(guide)
        except TooMuch:
            self._slow.ask(guide)
        else:
            self._quick.ask(guide)

    def close(self) -> None:
        """Ends the processes; what waits gets no verdict any more."""
        self._quick.close()
        self._slow.close()

    def _take_quick(self, guide: Guide, error: RouterError | None) -> None:
        if not isinstance(error, TooMuch):
            self._decided(guide, error)
            return
        try:
            self._slow.ask(guide)
        except Busy as busy:
            self._decided(guide, busy)


def of(start: GrammarStart) -> Callable[[Decided], Grammars]:
    """What makes the lanes of an engine, or its only one where the whole time is short."""
    seconds = start.parameters.max_grammar_cpu_ms / 1000
    if seconds <= QUICK_CPU_SECONDS:
        return _gate(start, seconds)
    hurried = replace(start, parameters=replace(start.parameters, max_grammar_cpu_ms=1000 * QUICK_CPU_SECONDS))
    patient = replace(start, niceness=_NICENESS)
    return lambda decided: GrammarLanes(_gate(hurried, QUICK_CPU_SECONDS), _gate(patient, seconds), decided)


def _gate(start: GrammarStart, cpu_seconds: float) -> Gate:
    return lambda decided: GrammarGate(lambda: GrammarProcess(start), cpu_seconds, decided)
