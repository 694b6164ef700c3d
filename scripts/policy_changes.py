"""Who moves, who is newly refused, and what it costs when decisions are made by another policy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bls.routing import decision_log
from bls.routing.decision import NO_MODEL, Decision, Prompt
from bls.routing.decision_json import prompt_to_json
from bls.routing.policy_file import Policy

EXAMPLES = 3  # of each move


class Changes:
    """Takes pairs of decisions. Costs are by the new policy's prices on both sides, so that only moves change them."""

    def __init__(self, old: Policy | None, new: Policy) -> None:
        self.versions = (old.version if old else "recorded", new.version)
        self._tiers = {tier.model: tier for tier in (*(old.settings.tiers if old else ()), *new.settings.tiers)}
        self.count = 0
        self.moves: Counter[tuple[str, str]] = Counter()
        self.newly_refused = 0
        self._examples: dict[tuple[str, str], list[str]] = {}
        self._totals: tuple[dict[str, Counter[str]], dict[str, Counter[str]]] = ({}, {})

    @property
    def moved(self) -> int:
        return sum(self.moves.values())

    def add(self, prompt: Prompt, before: Decision, after: Decision, output_tokens: int) -> None:
        """`output_tokens`: what the answer had, or is taken to have, by either."""
        self.count += 1
        for totals, decision in zip(self._totals, (before, after), strict=True):
            of_model = totals.setdefault(decision.model, Counter())
            of_model["requests"] += 1
            if decision.model in self._tiers and not decision.is_refusal:
                of_model["input_tokens"] += prompt.tokens[decision.model]
                of_model["output_tokens"] += output_tokens
        if (before.model, before.reason) == (after.model, after.reason):
            return
        move = tuple(f"{each.model} {each.reason}" for each in (before, after))
        self.moves[move[0], move[1]] += 1
        self.newly_refused += after.is_refusal and not before.is_refusal
        told = self._examples.setdefault((move[0], move[1]), [])
        if len(told) < EXAMPLES:
            told.append(json.dumps(prompt_to_json(prompt), default=str))

    def cost(self, side: int) -> float:
        return sum(
            self._tiers[model].cost(counts["input_tokens"], counts["output_tokens"])
            for model, counts in self._totals[side].items()
            if model in self._tiers
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "policies": list(self.versions),
            "decisions": self.count,
            "moved": self.moved,
            "newly_refused": self.newly_refused,
            "moves": [{"from": old, "to": new, "count": n} for (old, new), n in self.moves.most_common()],
            "before": {model: dict(counts) for model, counts in self._totals[0].items()},
            "after": {model: dict(counts) for model, counts in self._totals[1].items()},
            "cost": [round(self.cost(0), 6), round(self.cost(1), 6)],
        }

    def for_people(self, what: str) -> str:
        share = f" ({100 * self.moved / self.count:.1f} %)" if self.count else ""
        lines = [
            f"{self.count} {what}, {' -> '.join(self.versions)}: "
            f"{self.moved} move{share}, {self.newly_refused} newly refused"
        ]
        for move, count in self.moves.most_common():
            lines.append(f"  {count:>7}  {move[0]} -> {move[1]}")
            lines += [f"             such as {told[:160]}" for told in self._examples[move][:1]]
        if self.moved:
            for model in sorted(self._totals[0].keys() | self._totals[1].keys()):
                lines.append(f"  {'refused' if model == NO_MODEL else model}: {self._change(model)}")
            lines.append(f"  cost: {self.cost(0):.4g} -> {self.cost(1):.4g}")
        return "\n".join(lines)

    def _change(self, model: str) -> str:
        before, after = (totals.get(model, Counter()) for totals in self._totals)
        names = ("requests",) if model == NO_MODEL else ("requests", "input_tokens", "output_tokens")
        return ", ".join(f"{name.replace('_', ' ')} {before[name]} -> {after[name]}" for name in names)


def replayed(path: Path, policy: Policy) -> Changes:
    """Recorded decisions made again by `policy`. ValueError for a line that is none or lacks a count."""
    changes = Changes(None, policy)
    for number, recorded in decision_log.read(path):
        try:
            decision = policy.decide(recorded.prompt, recorded.state)
        except KeyError as model:
            raise ValueError(
                f"{path}:{number}: the recording has no token counts for {model}, which the policy needs"
            ) from None
        changes.add(recorded.prompt, recorded.decision, decision, int(recorded.outcome.get("output_tokens", 0)))
    return changes
