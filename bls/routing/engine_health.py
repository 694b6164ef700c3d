"""How the engines are doing, as all router processes see them together, and the circuit breaker of each.

An engine that failed BREAKER_FAILURES times within the window, and in BREAKER_ERROR_RATE of its attempts, is left alone
for the cool-down; then one request, over all processes, tries it. Success closes the breaker, failure opens it anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from bls.routing.decision import State, TierState
from bls.routing.settings import Settings
from bls.routing.shared_table import SharedTable
from bls.routing.table_layout import (
    BUCKET_FIELDS,
    BUCKETS,
    FAILURES,
    FIRST_BUCKET,
    FIRST_TOKEN_SECONDS,
    FIRST_TOKENS,
    IN_FLIGHT,
    ROW_NUMBERS,
    SHARED,
    START,
    SUCCESSES,
)
from bls.routing.waiting import Waiting

STALE_SECONDS = 1.0  # The most that rates and times lag behind; counts in flight and breakers don't.

_OPEN_UNTIL, _COUNTED_FROM, _NOT_LOADED_AT = range(3)  # A model's shared numbers; 0: never.


class EngineHealth:
    """Asked for the state before each decision, told of each attempt at an engine. `opened` hears of a breaker that
    this process opened, by model."""

    def __init__(
        self,
        table: SharedTable,
        clock: Callable[[], float] = time.monotonic,
        opened: Callable[[str], None] = lambda model: None,
    ) -> None:
        self._opened = opened
        self._table = table
        self._clock = clock
        self._waiting = Waiting(table, clock)
        self._refreshed = -STALE_SECONDS - 1
        self._recent: dict[str, tuple[float | None, float]] = {}  # first token seconds and error rate by model

    def state(self, settings: Settings) -> State:
        """Of the policy's models."""
        now = self._clock()
        models = settings.models
        if now - self._refreshed > STALE_SECONDS or any(model not in self._recent for model in models):
            self.refresh(settings)
        in_flight = self._table.in_flight[self._table.alive].sum(axis=0).tolist()
        tiers = {}
        for model in models:
            slot = self._table.slot(model)
            tiers[model] = self._tier_state(model, slot, int(in_flight[slot]), now)
        return State(tiers)

    def refresh(self, settings: Settings) -> None:
        """Looks for dead processes and sums what the living ones counted."""
        now = self._clock()
        self._table.look_lately()
        recent = {}
        for model in settings.models:
            counts = self._counts(self._table.slot(model), now - settings.breaker_window_seconds)
            attempts = counts[SUCCESSES] + counts[FAILURES]
            first = counts[FIRST_TOKEN_SECONDS] / counts[FIRST_TOKENS] if counts[FIRST_TOKENS] else None
            recent[model] = first, counts[FAILURES] / attempts if attempts else 0.0
        self._recent, self._refreshed = recent, now

    @property
    def busy_share(self) -> float:
        """How many of the living processes have an attempt in flight."""
        alive = self._table.alive
        return float(self._table.in_flight[alive].sum() / len(alive))

    def begin(
        self, model: str, settings: Settings, in_any_case: bool = False, work: float = 0.0, since: float | None = None
    ) -> Attempt | None:
        """The attempt that may be made now, or None while the engine's breaker is open, unless `in_any_case`.

        `work` waits for its first token, `since` then or from now on; 0 where that tells nothing of others' waits.
        """
        table, slot = self._table, self._table.slot(model)
        is_probe = False
        while (until := self._shared(slot, _OPEN_UNTIL)) != 0.0:
            if self._clock() < until or not table.try_lock_probe(slot):
                if in_any_case:
                    break
                return None
            if self._shared(slot, _OPEN_UNTIL) == until:
                is_probe = True
                break
            table.unlock_probe(slot)  # Another process has tried it between the two looks.
        return Attempt(self, model, slot, settings, is_probe, work, since)

    def _tier_state(self, model: str, slot: int, in_flight: int, now: float) -> TierState:
        first_token_seconds, error_rate = self._recent.get(model, (None, 0.0))
        until, not_loaded_at = self._shared(slot, _OPEN_UNTIL), self._shared(slot, _NOT_LOADED_AT)
        return TierState(
            ready=not not_loaded_at or now - not_loaded_at >= STALE_SECONDS,
            in_flight=in_flight,
            first_token_seconds=first_token_seconds,
            error_rate=error_rate,
            cooling_down=until != 0 and (now < until or self._table.is_probed(slot)),
        )

    def _counts(self, slot: int, since: float) -> list[float]:
        """The sums of the buckets' fields, over all living processes."""
        buckets = self._table.buckets[self._table.alive, slot].reshape(-1, BUCKET_FIELDS)
        sums: list[float] = buckets[buckets[:, START] >= since].sum(axis=0).tolist()
        return sums

    def _shared(self, slot: int, field: int) -> float:
        number: float = self._table.shared[slot * SHARED + field]
        return number

    def _set_shared(self, slot: int, field: int, number: float) -> None:
        self._table.shared[slot * SHARED + field] = number

    def _add(self, slot: int, settings: Settings, counts: Sequence[tuple[int, float]]) -> None:
        width = settings.breaker_window_seconds / BUCKETS
        number = int(self._clock() / width)
        # A breaker that has closed begins to count anew, in the middle of a bucket too.
        start = max(number * width, self._shared(slot, _COUNTED_FROM))
        own, at = self._table.own, slot * ROW_NUMBERS + FIRST_BUCKET + number % BUCKETS * BUCKET_FIELDS
        if own[at + START] != start:
            own[at + START] = 0.0
            for field in range(START + 1, BUCKET_FIELDS):
                own[at + field] = 0.0
            own[at + START] = start
        for field, amount in counts:
            own[at + field] += amount

    def _count_in_flight(self, slot: int, amount: int) -> None:
        self._table.own[slot * ROW_NUMBERS + IN_FLIGHT] += amount

    def _failed(self, model: str, slot: int, settings: Settings, is_probe: bool) -> None:
        now = self._clock()
        if is_probe:
            self._set_shared(slot, _OPEN_UNTIL, now + settings.cool_down_seconds)
            self._opened(model)
            logging.warning(f"{model} failed again: it is left alone for {settings.cool_down_seconds:g} seconds more")
        elif self._shared(slot, _OPEN_UNTIL) == 0:
            self._table.look()
            since = max(now - settings.breaker_window_seconds, self._shared(slot, _COUNTED_FROM))
            counts = self._counts(slot, since)
            failures, attempts = int(counts[FAILURES]), int(counts[FAILURES] + counts[SUCCESSES])
            if failures >= settings.breaker_failures and failures >= settings.breaker_error_rate * attempts:
                self._set_shared(slot, _OPEN_UNTIL, now + settings.cool_down_seconds)
                self._opened(model)
                logging.warning(
                    f"{model} failed {failures} of {attempts} times in {settings.breaker_window_seconds:g} seconds: "
                    f"it is left alone for {settings.cool_down_seconds:g} seconds"
                )

    def _worked(self, model: str, slot: int, is_probe: bool) -> None:
        if self._shared(slot, _NOT_LOADED_AT):
            self._set_shared(slot, _NOT_LOADED_AT, 0.0)
        if is_probe:
            self._set_shared(slot, _COUNTED_FROM, self._clock())
            self._set_shared(slot, _OPEN_UNTIL, 0.0)
            logging.warning(f"{model} works again")


class Attempt:
    """One try at an engine, in flight from when it is made until `close`."""

    def __init__(
        self,
        health: EngineHealth,
        model: str,
        slot: int,
        settings: Settings,
        is_probe: bool,
        work: float,
        since: float | None,
    ) -> None:
        self._health = health
        self._model = model
        self._slot = slot
        self._settings = settings
        self._is_probe = is_probe
        self._is_open = True
        self._work = work
        self._ahead = health._waiting.begin(slot, work, since) if work else 0.0
        self._began = health._clock()
        health._count_in_flight(slot, 1)

    def worked(self, has_token: bool = True) -> None:
        """The engine's first response came, a token in it or not."""
        seconds = self._health._clock() - self._began
        counts = [(SUCCESSES, 1.0)]
        if has_token:
            counts += [(FIRST_TOKENS, 1.0), (FIRST_TOKEN_SECONDS, seconds)]
        if has_token and self._work:
            limit_seconds = self._settings.max_wait_seconds
            self._health._waiting.first_token(self._slot, self._work, self._ahead, limit_seconds)
            self._work = 0.0
        self._health._add(self._slot, self._settings, counts)
        self._health._worked(self._model, self._slot, self._is_probe)
        self._end_probe()

    def failed(self) -> None:
        """The engine broke, at any time, or was too late: what its breaker counts."""
        self._health._add(self._slot, self._settings, [(FAILURES, 1.0)])
        self._health._failed(self._model, self._slot, self._settings, self._is_probe)
        self._end_probe()

    def not_loaded(self) -> None:
        """Seen at once and at no cost, so no matter for the breaker; for a second it is known to be so."""
        self._health._set_shared(self._slot, _NOT_LOADED_AT, self._health._clock())

    def close(self) -> None:
        """The attempt is over; once is enough."""
        if self._is_open:
            self._is_open = False
            self._health._count_in_flight(self._slot, -1)
            if self._work:
                self._health._waiting.end(self._slot)
            self._end_probe()

    def _end_probe(self) -> None:
        if self._is_probe:
            self._is_probe = False
            self._health._table.unlock_probe(self._slot)
