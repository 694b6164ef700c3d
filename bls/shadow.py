"""Requests that also run on another engine, or through another policy, after their answer has ended.

In the same process and after the client's stream, since a process may have one decoupled stream at a time. No client
waits for it but one that comes while all other processes are busy, so it is left out where many are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from bls.arrays import Tensors
from bls.engine_stream import EngineStream, output_ids
from bls.errors import RouterError
from bls.ports import Metrics, Models
from bls.request import Request
from bls.routing.decision import Decision
from bls.routing.policy_file import Policy
from bls.routing.route import Route
from bls.watcher import Watch

SHADOWS = "llm_router_shadow_requests_total"
SHADOW_TOKENS = "llm_router_shadow_tokens_total"
SHADOW_COST = "llm_router_shadow_cost_total"
DECISIONS = "llm_router_shadow_policy_decisions_total"
DECISIONS_COST = "llm_router_shadow_policy_cost_total"


def declare(metrics: Metrics) -> None:
    metrics.declare(SHADOWS, "COUNTER", "Requests that also ran unseen, by model and outcome")
    metrics.declare(SHADOW_TOKENS, "COUNTER", "Tokens that they got, by model, and whether the answer began with them")
    metrics.declare(SHADOW_COST, "COUNTER", "What they cost by the policy's prices, by model")
    metrics.declare(
        DECISIONS, "COUNTER", "What the shadow policy would have decided, and whether the policy did so too"
    )
    metrics.declare(DECISIONS_COST, "COUNTER", "What the answers would have cost by the shadow policy, by its model")


@dataclass
class Answered:
    """What a shadow is compared with: the answer's ids."""

    request: Request
    route: Route
    encoded: Mapping[str, Tensors]
    ids: list[int] = field(default_factory=list)

    def shadow(self, finish: str) -> Shadow | None:
        """The shadow of an answer that ended so; None if it has none."""
        route, settings = self.route, self.route.policy.settings
        if settings.shadow_share <= 0 or finish not in ("stop", "length"):
            return None
        model = settings.shadow
        is_wanted = model != route.decision.model and model in self.encoded and route.prompt.fits(model)
        if not is_wanted or not route.prompt.is_among("shadow", settings.shadow_share):
            return None
        return Shadow(self, route.to(model, "shadow"))


@dataclass(frozen=True)
class Shadow:
    """A request that is to run again, on the engine of `route`, where no client sees it."""

    answered: Answered
    route: Route

    def run(self, models: Models, watch: Watch, metrics: Metrics) -> None:
        """Runs it to its end or the watch's, and counts. Errors here never reach a client."""
        model = self.route.decision.model
        if self.route.is_crowded:
            metrics.add(SHADOWS, model=model, outcome="left_out")
            return
        ids, wanted = [], self.answered.ids
        outcome = "failed"
        try:
            for new in self._ids(models, watch):
                ids += new
            outcome = "late" if watch.outcome else "same" if ids == wanted else "other"
        except RouterError as error:
            logging.warning(f"shadow: {error}")
        metrics.add(SHADOWS, model=model, outcome=outcome)
        agreeing = _agreeing(ids, wanted)
        metrics.add(SHADOW_TOKENS, agreeing, model=model, agrees="yes")
        metrics.add(SHADOW_TOKENS, len(ids) - agreeing, model=model, agrees="no")
        if tier := self.route.policy.settings.tier(model):
            metrics.add(SHADOW_COST, tier.cost(self.route.prompt.tokens[model], len(ids)), model=model)

    def _ids(self, models: Models, watch: Watch) -> Iterator[list[int]]:
        stream = EngineStream(models, self.answered.request, watch, self.answered.encoded)
        with closing(stream):
            stream.start(self.route)
            response = stream.first
            while response is not None:
                yield output_ids(response)
                response = stream.following() if watch.look_when_due() is None else None


def count_decision(made: Decision, other: tuple[Policy, Decision], output_tokens: int, metrics: Metrics) -> None:
    """Counts what another policy said to a request whose answer had so many tokens."""
    policy, decision = other
    agrees = "yes" if decision.model == made.model else "no"
    metrics.add(DECISIONS, model=decision.model, reason=decision.reason, agrees=agrees)
    if tier := policy.settings.tier(decision.model):
        metrics.add(DECISIONS_COST, tier.cost(decision.tokens[tier.model], output_tokens), model=tier.model)


def _agreeing(one: Sequence[int], other: Sequence[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
