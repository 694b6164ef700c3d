"""Who knows which grammars the worker may be given; `engines.triton.grammar_gate` where there is a library to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bls.errors import RouterError
from engines.worker.generation import Guide

Decided = Callable[[Guide, "RouterError | None"], None]


class Grammars(Protocol):
    """`decided` of its maker is called with each verdict that was asked for."""

    def admits(self, guide: Guide) -> bool: ...

    def ask(self, guide: Guide) -> None: ...

    def close(self) -> None: ...


class _All:
    def admits(self, guide: Guide) -> bool:
        return True

    def ask(self, guide: Guide) -> None:
        raise AssertionError("every grammar is known")

    def close(self) -> None:
        pass


def no_grammars(decided: Decided) -> Grammars:
    """Every grammar goes to the worker, which finds out by itself: for tests."""
    return _All()
