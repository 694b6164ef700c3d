"""How long requests wait for their first token at each engine, as all router processes of a server see it together.

A request's work is the tokens of its prompt and what any request costs. An engine computes many requests at once, so a
wait depends on the work that is ahead of it; how long a unit takes is learnt from each first token.
"""

from __future__ import annotations

from collections.abc import Callable

from bls.routing.shared_table import SharedTable
from bls.routing.table_layout import ROW_NUMBERS, SHARED, SINCE, WAITING

REQUEST_WORK = 100.0  # What a request costs whatever its length, in tokens of a prompt.

_DOOR = "-"  # The table's name for requests that have not reached an engine yet.
_MEAN_SECONDS, _MEAN_WORK, _LATE_AT = range(3, SHARED)  # A model's shared numbers, behind those of engine_health.
_SMOOTHING = 0.1
_EVIDENCE_SECONDS = 5.0


class Waiting:
    """What waits at the door, before any engine, and at the engines, by the table's slot.

    A process has one request at a time, so it waits in one place.
    """

    def __init__(self, table: SharedTable, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock

    def arrive(self, work: float) -> None:
        """Notes that `work` waits at the door."""
        self._begin(self._table.slot(_DOOR), work, self._clock())

    def leave_door(self) -> float | None:
        """Since when the request waits that goes on now; None if none was at the door."""
        at = self._table.slot(_DOOR) * ROW_NUMBERS
        since = self._table.own[at + SINCE] if self._table.own[at + WAITING] else None
        self._table.own[at + WAITING] = 0.0
        return since

    def begin(self, slot: int, work: float, since: float | None) -> float:
        """Notes that `work` waits at an engine; gives the work that is ahead of it."""
        ahead = self.work(slot) + self.work(self._table.slot(_DOOR))
        self._begin(slot, work, self._clock() if since is None else since)
        return ahead

    def end(self, slot: int) -> None:
        """It waits there no longer."""
        self._table.own[slot * ROW_NUMBERS + WAITING] = 0.0

    def at_door(self) -> int:
        """How many requests wait at the door."""
        return int((self._table.waiting[self._table.alive, self._table.slot(_DOOR)] > 0).sum())

    def work(self, slot: int) -> float:
        """The work that waits."""
        return float(self._table.waiting[self._table.alive, slot].sum())

    def first_token(self, slot: int, work: float, ahead: float, limit_seconds: float) -> None:
        """Learns from one that has come: of its time, the work that was ahead took that work's share."""
        seconds = self._clock() - self._table.own[slot * ROW_NUMBERS + SINCE]
        self.end(slot)
        self._smooth(slot, _MEAN_SECONDS, seconds)
        self._smooth(slot, _MEAN_WORK, ahead + work)
        if seconds * ahead / (ahead + work) > limit_seconds / 2:
            self._table.shared[slot * SHARED + _LATE_AT] = self._clock()

    def expected_seconds(self, slot: int, limit_seconds: float) -> float:
        """Until the work that waits at the door and the engine is done; 0 while nobody waits too long.

        Only where waits were long of late is the work's time believed: at a quiet engine few requests wait, and a batch
        takes no longer than one of them.
        """
        now, door = self._clock(), self._table.slot(_DOOR)
        ages = sorted((*self._ages(slot, now), *self._ages(door, now)))
        age = ages[-2] if len(ages) > 1 else 0.0  # The oldest may be one long prompt, which waits for nobody.
        late_at = self._shared(slot, _LATE_AT)
        if age <= limit_seconds / 2 and (late_at == 0 or now - late_at > _EVIDENCE_SECONDS):
            return 0.0
        mean_work = self._shared(slot, _MEAN_WORK)
        seconds_of_one = self._shared(slot, _MEAN_SECONDS) / mean_work if mean_work else 0.0
        return max(age, (self.work(slot) + self.work(door)) * seconds_of_one)

    def _begin(self, slot: int, work: float, since: float) -> None:
        at = slot * ROW_NUMBERS
        self._table.own[at + SINCE] = since  # First: who sees that it waits, sees since when.
        self._table.own[at + WAITING] = work

    def _ages(self, slot: int, now: float) -> list[float]:
        """How long each has waited."""
        waits = self._table.waiting[self._table.alive, slot] > 0
        ages: list[float] = (now - self._table.since[self._table.alive, slot][waits]).tolist()
        return ages

    def _smooth(self, slot: int, field: int, value: float) -> None:
        """Processes may overwrite each other here: a value that is lost is one of many."""
        before = self._shared(slot, field)
        self._table.shared[slot * SHARED + field] = before + _SMOOTHING * (value - before) if before else value

    def _shared(self, slot: int, field: int) -> float:
        number: float = self._table.shared[slot * SHARED + field]
        return number
