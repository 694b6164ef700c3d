"""The policy at work on one request: the decision, then one engine after the other until one takes it."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from bls.routing import decision_log
from bls.routing.admission import Admission
from bls.routing.decision import Decision, Prompt, State
from bls.routing.engine_health import Attempt, EngineHealth
from bls.routing.policy_file import SHIPPED, Guard, Policy, load_policy, unguarded
from bls.routing.shared_table import SharedTable
from bls.routing.waiting import REQUEST_WORK


class Newest(Protocol):
    @property
    def current(self) -> Policy: ...


class Shadow(Protocol):
    @property
    def current(self) -> Policy | None: ...


class Shipped:
    """The shipped policy, for ever: where no server watches a file."""

    def __init__(self) -> None:
        self.current = load_policy(SHIPPED)


class Routing:
    """What a router process decides by. Without arguments: the shipped policy, and a state that nobody shares."""

    def __init__(
        self,
        policies: Newest | None = None,
        health: EngineHealth | None = None,
        guard: Guard = unguarded,
        log: Path | None = None,
        shadow: Shadow | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._log = log
        self._shadow = shadow
        self._policies = policies or Shipped()
        self._health = health or EngineHealth(SharedTable(None))
        self._admission = admission or Admission(SharedTable(None))
        self._guard = guard

    @property
    def policy(self) -> Policy:
        """The newest; a request keeps the one that it began with."""
        return self._policies.current

    @contextmanager
    def arrival(self, policy: Policy, characters: int, priority: int) -> Iterator[None]:
        """A request of so many characters, from its begin to its end. Raises Overloaded if there is no place for it."""
        self._admission.answers(1)
        try:
            self._admission.arrive(policy.settings, characters, priority)
            yield
        finally:
            self._admission.leave_door()
            self._admission.answers(0)

    def abandon(self) -> None:
        """The request that has arrived never comes to its end here."""
        self._admission.answers(0)

    @property
    def left_behind(self) -> int:
        """Requests that a process was answering when it died, whose place this one has taken."""
        return self._admission.left_behind

    def route(self, policy: Policy, prompt: Prompt) -> Route:
        state = policy.seen(State(self._health.state(policy.settings).tiers, datetime.now(timezone.utc)))
        decision = policy.decide(prompt, state, self._guard)
        return Route(policy, self._health, self._admission, prompt, state, decision)

    def holds_for(self, route: Route, prompt: Prompt) -> bool:
        """Whether the policy, now that more is known of the prompt, still sends it this way, if for another reason."""
        made = route.policy.decide(prompt, route.state, self._guard)
        return route.take(made, prompt)

    def shadow_of(self, route: Route) -> tuple[Policy, Decision] | None:
        """Another policy that follows the requests unseen, and what it would have said to this one."""
        policy = self._shadow.current if self._shadow else None
        if policy is None or not set(policy.settings.models) <= set(route.prompt.tokens):
            return None
        return policy, policy.decide(route.prompt, route.state, self._guard)

    def record(self, route: Route, outcome: Mapping[str, Any]) -> None:
        """A line in the log of decisions, where the policy wants one."""
        megabytes = route.policy.settings.record_megabytes
        if not megabytes or self._log is None:
            return
        try:
            self._log.parent.mkdir(exist_ok=True)
            recorded = decision_log.Recorded(route.prompt, route.state, route.made, outcome)
            decision_log.append(self._log, recorded, megabytes << 20)
        except OSError as error:
            logging.warning(f"{self._log}: the decision is not recorded: {error.strerror}")


class Route:
    """One request's. `made` is the policy's decision, `decision` that or the fallback that stands in for it."""

    def __init__(
        self,
        policy: Policy,
        health: EngineHealth,
        admission: Admission,
        prompt: Prompt,
        state: State,
        made: Decision,
    ) -> None:
        self.policy = policy
        self.prompt = prompt
        self.state = state
        self.made = self.decision = made
        self._health = health
        self._admission = admission
        self._tried = {made.model}
        self._since: float | None = None  # When the request came, once it has left the door.

    def to(self, model: str, reason: str) -> Route:
        """The way to this model instead, without a fallback."""
        made = replace(self.made, model=model, reason=reason)
        route = Route(self.policy, self._health, self._admission, self.prompt, self.state, made)
        route._tried.update(self.policy.settings.models)
        return route

    def take(self, made: Decision, prompt: Prompt) -> bool:
        """Takes over a new decision, if it names the same engine as the first one."""
        if made.model != self.made.model:
            return False
        if self.decision is self.made:
            self.decision = made
        self.made, self.prompt = made, prompt
        return True

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits for a first token of the decision's engine."""
        return self._admission.is_quiet(self.decision.model)

    @property
    def is_crowded(self) -> bool:
        """Whether half of the router processes or more are answering."""
        return self._health.busy_share >= 0.5

    def begin(self, tells_wait: bool = True) -> Attempt | None:
        """The attempt at the decision's engine; None while it is left alone, and another could be tried.

        `tells_wait`: the time until its first token is how long others wait. Raises Overloaded if the engine has no
        place for it.
        """
        model, settings = self.decision.model, self.policy.settings
        self._since = self._admission.leave_door() or self._since
        self._admission.check(model, settings, self.prompt.priority)
        is_last = not self._has_others
        work = REQUEST_WORK + self.prompt.tokens[model] if tells_wait else 0.0
        return self._health.begin(model, settings, in_any_case=is_last, work=work, since=self._since)

    @property
    def first_token_seconds(self) -> float | None:
        """How long the engine may take for its first token; None where no other could be tried."""
        if not self._has_others:
            return None
        return self.policy.settings.first_token_seconds[self.decision.model]

    @property
    def _has_others(self) -> bool:
        """Whether there is another engine to fall back to."""
        return bool(self.policy.others(self.decision, self._tried, self.prompt))

    def fall_back(self, why: str) -> bool:
        """Makes the next engine of the chain the decision's; False if there is none."""
        following = self.policy.fall_back(self.decision, why, self._tried, self.prompt, self.state)
        if following is None:
            return False
        self._tried.add(following.model)
        self.decision = following
        return True

    def start_over(self) -> None:
        """All engines may be tried again."""
        self.decision, self._tried = self.made, {self.made.model}

    def pause_seconds(self) -> float:
        """Before all engines are tried again: no two requests wait for the same time."""
        return self.policy.settings.retry_seconds * random.uniform(0.5, 1.5)
