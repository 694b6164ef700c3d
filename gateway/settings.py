"""What the gateway is told at its start; the command scripts/gateway says each with its option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """`prices`: of a thousand prompt tokens and of a thousand answered ones, by tier and engine model."""

    triton: str = "127.0.0.1:8001"
    triton_metrics: str = "http://127.0.0.1:8002/metrics"  # "" for none
    host: str = "127.0.0.1"
    port: int = 9000
    keys: Path | None = None
    workers: int = 1  # processes
    is_open: bool = False  # without keys, for whoever comes by whatever name
    ledger: Path | None = None  # a folder
    tiers: Mapping[str, str] = field(
        default_factory=lambda: {"small": "tensorrt_llm_small", "large": "tensorrt_llm_large"}
    )
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    has_page: bool = True
    refusals_are_errors: bool = False
    metrics_are_open: bool = False
    origins: tuple[str, ...] = ()  # that browsers may send requests from, besides the gateway's own
    parked_s: float = 15.0  # how long a request waits for a server that is away
    max_parked: int = 256
    max_in_flight: int = 512
    max_connections: int = 1024
    max_body_bytes: int = 1 << 20
    head_s: float = 10.0  # a request's head must be there within this,
    body_s: float = 10.0  # and its body
    slow_reader_s: float = 10.0  # a client that takes nothing for so long is cut
    silent_s: float = 15.0  # a stream that has had nothing to send for so long gets a comment
    server_silent_s: float = 10.0  # after which a server that sent nothing must say that it lives
    timeout_s: float = 300.0  # of an answer, as the router has it
    drain_s: float = 30.0
    lame_duck_s: float = 0.0  # of a drain, at first: /ready says no, and new requests are still answered
    admin: tuple[str, int] | None = None  # address and port of the admin door

    @property
    def models(self) -> tuple[str, ...]:
        """The names for `model` in the order in which they are listed."""
        return ("auto", *self.tiers)
