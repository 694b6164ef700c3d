"""Which server serves, which one is to take over from it, and which ones end.

A server that died or answers nothing is followed by a new one, the later the oftener. One that answers in part, that
has gathered processes which can't end, or that is to be replaced on request is changed over: a second one is started
beside it and gets the new connections once it is ready; the first ends when it has answered what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from scripts.server import room, steering
from scripts.server.drain import Drain, in_flight
from scripts.server.generation import Generation
from scripts.server.leaving import Leaving
from scripts.server.readiness_server import Care
from scripts.server.restart_pace import RestartPace
from scripts.server.succession_options import Plan
from scripts.server.tritonserver import Settings, shown

STANDBY_PAUSE_S = 30.0  # after a standby that didn't get ready
START_ATTEMPTS = 3  # of a server that is aborted while it loads, which a busy machine does now and then
OLD_PROCESSES = 64  # so many that don't end are borne, each some 20 MB, or 32 threads where it was killed


class Succession:
    """Begins with a server that is ready; then `mind` several times a second.

    start: starts another server; tell: is told of each server that begins to serve.
    """

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        start: Callable[[], Generation],
        say: Callable[[str], None],
        tell: Callable[[Generation], None],
    ) -> None:
        self.care = Care()
        self.active: Generation | None = None
        self.following: Generation | None = None
        self.drains: list[Drain] = []
        self._settings = settings
        self._plan = plan
        self._start = start
        self._say = say
        self._tell = tell
        self._leaving: list[Leaving] = []
        self._reason = ""  # why the active one is to be replaced
        self._attempts = 0  # to replace it
        self._ends_at_once = False  # it hangs in part, so it is not drained
        self._pace = RestartPace()
        self._start_at: float | None = None
        self._served_since = 0.0
        self._reported: set[str] = set()
        self._announced: Generation | None = None  # the standby that was said to be ready

    def serve(self, generation: Generation) -> None:
        """`generation` is the one from now on; it is ready."""
        self.active, self.following = generation, None
        self._reason, self._ends_at_once = "", False
        self._reported.clear()
        self._served_since = time.monotonic()
        self._start_at = time.monotonic() if self._plan.standby else None
        generation.serve()
        self._tell(generation)

    def mind(self) -> bool:
        """Looks after all servers. False once none serves and none will."""
        if self.active:
            if not self._mind_active(self.active):
                return False
        elif not self.following and self._is_due():
            self._begin()
        if self.following:
            self._mind_following(self.following)
        elif self._plan.standby and self.active and self._is_due():
            self._begin_standby(self.active)
        self._mind_old()
        return True

    def replace(self) -> None:
        """A person wants a new server: what a standby has loaded may be older than that."""
        if self.active and self.following:
            self.following.clean_up()
            self.following, self._reason = None, ""
        self._replace("on request", ends_at_once=False)

    def settle(self) -> list[Generation]:
        """No server is to follow any more; those that serve."""
        if self.following:
            self.following.clean_up()
            self.following = None
        return [leaving.generation for leaving in self._leaving] + ([self.active] if self.active else [])

    def stop(self, drain_s: float | None = None) -> list[Drain]:
        """Asks every server to stop; those that are to be waited for, `drain_s` at most for what is in flight."""
        ending = self.settle()
        self.drains += [Drain(generation, drain_s) for generation in ending]  # first: metrics are asked for meanwhile
        self._leaving, self.active = [], None
        return self.drains

    def clean_up(self) -> None:
        """Nothing of any server is left."""
        left = [drain.generation for drain in self.drains] + [leaving.generation for leaving in self._leaving]
        for generation in [*left, self.active, self.following]:
            if generation:
                generation.clean_up()

    def _mind_active(self, active: Generation) -> bool:
        active.look()
        if active.canary.is_whole_server_hung:
            self._say("error: tritonserver answers no request any more: it is ended")
            active.kill()
        if active.has_ended:
            return self._bury(active)
        active.care()
        if active.repairs:
            self.care.repairs, self.care.old = active.repairs.repaired, active.repairs.old
        if not self._reason:
            self._judge(active)
        return True

    def _judge(self, active: Generation) -> None:
        """Has the server replaced that answers in part, or that has too many old processes and nothing to do."""
        hung = ", ".join(sorted(active.canary.hung))
        old = active.repairs.left_behind if active.repairs and not active.repairs.is_repairing else 0
        if hung and hung not in self._reported:
            if self._beside_is_possible(active):
                self._replace(f"{hung} answers nothing since a process died", ends_at_once=True)
            else:
                self._reported.add(hung)
                self._say(f"error: {hung} answers nothing; only a new server helps: scripts/serve --replace")
        elif (
            old > OLD_PROCESSES
            and not in_flight(active.metrics(), self._settings.has_engines)
            and self._beside_is_possible(active)
        ):
            self._replace(f"{old} processes that were replaced didn't end", ends_at_once=False)

    def _bury(self, active: Generation) -> bool:
        self._say(f"error: tritonserver died: {active.server.ending()}")
        self._say(f"all of it: {shown(active.settings.log)}")
        active.clean_up()
        self.active, self._reason = None, ""
        if not self._plan.restarts:
            return False
        self.care.restarts += 1
        self._schedule(time.monotonic() - self._served_since)
        return True

    def _schedule(self, served_s: float) -> None:
        pause = self._pace.pause_s(served_s)
        self._start_at = time.monotonic() + pause
        if not self.following:
            self._say("starting it again" + (f" in {pause:.0f} s" if pause else ""))

    def _is_due(self) -> bool:
        return self._start_at is not None and time.monotonic() >= self._start_at

    def _replace(self, reason: str, ends_at_once: bool) -> None:
        active = self.active
        if self._reason or not active:
            return
        self._reason, self._ends_at_once, self._attempts = reason, ends_at_once, 0
        if self.following:  # it stands by
            return
        beside = self._beside_is_possible(active)
        self._say(f"changing over to a new server ({reason}){'' if beside else '; the old one ends first'}")
        if beside:
            self._begin()
            return
        self.drains.append(Drain(active))
        self.active, self._reason = None, ""
        self.care.changeovers += 1
        self._start_at = time.monotonic()

    def _beside_is_possible(self, active: Generation) -> bool:
        """Says why not, once for each reason."""
        if not self._plan.beside:
            return False
        lacking = room.lacking(active.server.pid, self._settings)
        if not lacking and not steering.prefer_first(active.server.pid, self._settings.ports):
            lacking = "this process may not look into its server (CAP_SYS_PTRACE)"
        if lacking and lacking not in self._reported:
            self._reported.add(lacking)
            self._say(f"no second server beside the first: {lacking}")
        return not lacking

    def _begin(self) -> None:
        if self.drains and not self.active:
            return  # what is there has no room for both, or has the ports
        self._start_at = None
        self._attempts += 1
        self.following = self._start()

    def _begin_standby(self, active: Generation) -> None:
        if self._beside_is_possible(active):
            self._begin()
        else:
            self._start_at = None

    def _mind_following(self, following: Generation) -> None:
        following.look()
        if following.failure:
            self.following = None
            if not following.failed:  # a model's failure was said
                self._say(f"error: {following.failure}")
            following.clean_up()
            self._after_failure(following)
        elif not self.active:
            has_company = self.drains or self._leaving
            if following.is_listening() if has_company else following.is_ready():
                self._take_over(following)
        elif self._reason and following.is_listening():
            self._change_over(self.active, following)
        elif not self._reason and self._announced is not following and following.is_listening():
            self._say("a second server is ready, to take over where this one dies")
            self._announced = following

    def _after_failure(self, following: Generation) -> None:
        log = shown(following.settings.log)
        if not self.active:
            self._say(f"the new server did not get ready; all of it: {log}")
            self._schedule(0.0)
            return
        if self._reason and following.was_aborted and self._attempts < START_ATTEMPTS:
            self._say("starting it again")
            self._begin()
            return
        self._say(f"the new server did not get ready, so the one at hand serves on; all of it: {log}")
        self._reason = ""
        self._start_at = time.monotonic() + STANDBY_PAUSE_S if self._plan.standby else None

    def _change_over(self, active: Generation, following: Generation) -> None:
        steering.prefer_second(active.server.pid, following.server.pid, self._settings.ports)
        if self._ends_at_once and active.canary.hung:  # it may have recovered
            active.kill()
            active.clean_up()
        else:
            self._leaving.append(Leaving(active))
        self.care.changeovers += 1
        self._take_over(following)

    def _take_over(self, following: Generation) -> None:
        self._say(f"the new server serves; its log: {shown(following.settings.log)}")
        self.serve(following)

    def _mind_old(self) -> None:
        for leaving in self._leaving[:]:
            if leaving.look():
                self._leaving.remove(leaving)
                self.drains.append(Drain(leaving.generation))
        for drain in self.drains[:]:
            if drain.look():
                self.drains.remove(drain)
                drain.generation.clean_up()
                well = "" if drain.has_ended_well else "; what it still had was cut off"
                self._say(f"the old server has ended{well}")
                if self.active:
                    steering.prefer_first(self.active.server.pid, self._settings.ports)
