"""What was read from a running server: everything that the doctor's rules go by. Frozen, and read from nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

from scripts.diagnosis.metrics_page import Page, increase

READY = "READY"


@dataclass(frozen=True)
class Model:
    """A model's config, as far as it matters here."""

    name: str
    backend: str = "python"
    max_batch_size: int = 0
    has_batcher: bool = False
    queue_delay_us: int = 0
    max_queue_size: int = 0  # of one priority level; 0: no limit
    priority_levels: int = 0
    queue_timeout_us: int = 0
    instances: int = 1
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_limited_queue(self) -> bool:
        """Whether Triton hands a batch on only to an instance that waits (PriorityQueue in its core, prefetching)."""
        return bool(self.max_queue_size or self.priority_levels or self.queue_timeout_us)

    @property
    def queue_places(self) -> int:
        """How many requests may wait in all; 0: no limit."""
        return self.max_queue_size * max(1, self.priority_levels)


@dataclass(frozen=True)
class Counts:
    """What Triton counts of a model since it was loaded, all versions together; times are microseconds.

    `queue_us` sums over requests, `busy_us` over executions: it is the time that instances worked.
    """

    requests: int = 0
    executions: int = 0
    queue_us: float = 0.0
    busy_us: float = 0.0

    def since(self, before: Counts) -> Counts:
        """What came on top; all of it where the counts began anew in between."""
        if self.requests < before.requests:
            return self
        return Counts(**{each.name: getattr(self, each.name) - getattr(before, each.name) for each in fields(self)})

    @property
    def mean_batch(self) -> float:
        return self.requests / self.executions if self.executions else 0.0

    @property
    def mean_wait_ms(self) -> float:
        return self.queue_us / self.requests / 1000 if self.requests else 0.0

    @property
    def mean_execution_ms(self) -> float:
        return self.busy_us / self.executions / 1000 if self.executions else 0.0


@dataclass(frozen=True)
class Machine:
    """The server's machine, where that is this one. Bytes; CPU seconds of the server and its processes."""

    cores: float
    cpu_seconds: float
    memory_total: int
    memory_available: int
    shm_total: int
    shm_free: int
    oom_kills: int
    stubs: Mapping[str, int]  # living processes of the python backend by model


@dataclass(frozen=True)
class Sample:
    """One look at the server. `at_s` is a clock that only goes on, `unix_s` what this machine takes for the time."""

    at_s: float
    unix_s: float
    page: Page
    states: Mapping[str, tuple[str, str]]  # of each model: READY or another word, and the reason
    counts: Mapping[str, Counts]
    last_inference_s: Mapping[str, float] = field(default_factory=dict)  # Unix time by the server's clock
    machine: Machine | None = None

    def is_ready(self, model: str) -> bool:
        return self.states.get(model, ("", ""))[0] == READY


@dataclass(frozen=True)
class Observation:
    """Looks at a server, in order, two at least; its loaded models; its log's lines from before and from meanwhile.

    `files`: where the config of each model is edited, of those that aren't loaded too. `policy_version`: of the
    router's policy file as it stands, "" where that can't be read.
    """

    samples: tuple[Sample, ...]
    models: Mapping[str, Model] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    log_before: Sequence[str] = ()
    log_during: Sequence[str] = ()
    has_log: bool = False
    policy_version: str = ""

    @property
    def first(self) -> Sample:
        return self.samples[0]

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @property
    def seconds(self) -> float:
        return self.last.at_s - self.first.at_s

    @cached_property
    def grown(self) -> Page:
        """By how much each counter grew."""
        return increase(self.first.page, self.last.page)

    def counted(self, model: str) -> Counts:
        """What the model did meanwhile."""
        return self.last.counts.get(model, Counts()).since(self.first.counts.get(model, Counts()))

    def gauge(self, name: str, **labels: str) -> list[float]:
        """What it showed at each look; nothing where it was not there at all."""
        shown = [sample.page.get(name, **labels) for sample in self.samples]
        return [] if all(value is None for value in shown) else [value or 0.0 for value in shown]

    def pending(self, model: str) -> list[float]:
        """Requests in Triton's queue of the model."""
        return self.gauge("nv_inference_pending_request_count", model=model)

    def file(self, model: str) -> str:
        return self.files.get(model, f"{model}/config.pbtxt")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
