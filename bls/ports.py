"""The doors between this code and its server: behind them stands triton_io.py in Triton, tests/fakes.py in tests."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from bls.arrays import Tensors
from bls.errors import RouterError


class Caller(Protocol):
    """Calls models that are not decoupled; arrays by tensor name, batch dimension kept."""

    def call(self, model: str, tensors: Tensors, outputs: Sequence[str]) -> Tensors:
        """The one response. Raises a RouterError."""


class Models(Caller, Protocol):
    """The door to the other models of the server. Each method raises a RouterError."""

    def stream(
        self, model: str, tensors: Tensors, outputs: Sequence[str], request_id: str
    ) -> Generator[Tensors, None, None]:
        """Each response in turn. Closing it waits for the engine's end: stop the request first."""

    def stop(self, model: str, request_id: str) -> None:
        """Ends the stream of that id; no error if there is none."""


class Metrics(Protocol):
    """Counters, gauges and histograms, by name and labels."""

    def declare(self, name: str, kind: str, description: str, buckets: Sequence[float] | None = None) -> None: ...
    def add(self, name: str, amount: float = 1, **labels: str) -> None: ...
    def show(self, name: str, **labels: str) -> None:
        """Makes the series, with nothing in it yet."""

    def set(self, name: str, value: float, **labels: str) -> None: ...
    def observe(self, name: str, value: float, **labels: str) -> None: ...


class Sender(Protocol):
    """The way back to the caller of one decoupled request."""

    def is_cancelled(self) -> bool:
        """Whether the caller has left."""

    def send(self, tensors: Tensors) -> None:
        """One response; does nothing once the stream has ended."""

    def finish(self, tensors: Tensors | None = None, error: RouterError | None = None) -> None:
        """The last response. Later calls do nothing."""
