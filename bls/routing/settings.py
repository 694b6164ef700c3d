"""What a policy file must define, its kinds and bounds: a name that is missing or wrong is refused with its line."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any

from bls.routing import clock
from bls.routing.decision import Example, Tier
from bls.safety.settings import Safety

SHOW, CUT = "show", "cut"  # what becomes of a model's thinking


class BadPolicy(Exception):
    """The policy can't be taken: the file, the line (0: none in particular) and the problem in one line."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        self.path = path
        self.line = line
        self.problem = " ".join(problem.split())
        super().__init__(f"{path}:{line}: {self.problem}" if line else f"{path}: {self.problem}")


class BadExample(BadPolicy):
    """An example does not hold; nothing else is wrong with the policy."""


@dataclass(frozen=True)
class Settings:
    """The policy's numbers, by the file's own names in lower case; docs/policy.md explains each."""

    tiers: tuple[Tier, ...]
    fallback: Mapping[str, tuple[str, ...]]
    first_token_seconds: Mapping[str, float]
    timeout_seconds: float
    retries: int
    retry_seconds: float
    breaker_failures: int
    breaker_error_rate: float
    breaker_window_seconds: float
    cool_down_seconds: float
    default: str
    shadow_share: float
    shadow_seconds: float
    shadow: str
    baseline: str
    record_megabytes: int
    refusal: str
    shadow_policy: str
    parameters: tuple[str, ...]
    template_values: tuple[str, ...]
    time_zone: str
    thinking: str
    safety: Safety
    examples: tuple[Example, ...]
    max_in_flight: Mapping[str, int]
    max_wait_seconds: float
    early_start: bool

    def tier(self, model: str) -> Tier | None:
        """The line of TIERS that names a model."""
        return next((tier for tier in self.tiers if tier.model == model), None)

    @cached_property
    def zone(self) -> tzinfo:
        return clock.zone(self.time_zone)

    @cached_property
    def models(self) -> tuple[str, ...]:
        return tuple(tier.model for tier in self.tiers)


_NUMBERS: Mapping[str, tuple[type, float, float]] = {
    "TIMEOUT_SECONDS": (float, 0.1, 86_400),
    "RETRIES": (int, 0, 10),
    "RETRY_SECONDS": (float, 0, 60),
    "BREAKER_FAILURES": (int, 1, 10_000),
    "BREAKER_ERROR_RATE": (float, 0, 1),
    "BREAKER_WINDOW_SECONDS": (float, 1, 3600),
    "COOL_DOWN_SECONDS": (float, 0.1, 3600),
    "SHADOW_SHARE": (float, 0, 1),
    "SHADOW_SECONDS": (float, 0.1, 3600),
    "RECORD_MEGABYTES": (int, 0, 100_000),
    "MAX_WAIT_SECONDS": (float, 0.01, 86_400),
}
# Of names that older policies lack.
_DEFAULTS: Mapping[str, Any] = {
    "MAX_WAIT_SECONDS": 1.0,
    "MAX_IN_FLIGHT": {},
    "TEMPLATE_VALUES": (),
    "TIME_ZONE": clock.UTC,
    "EARLY_START": True,
    "THINKING": SHOW,
}
_MODELS = ("DEFAULT", "SHADOW", "BASELINE")


def read_settings(namespace: Mapping[str, Any], path: Path, tree: ast.Module) -> Settings:
    """What an executed policy defines. Raises BadPolicy."""
    return _Reader(namespace, path, tree).settings()


class _Reader:
    def __init__(self, namespace: Mapping[str, Any], path: Path, tree: ast.Module) -> None:
        self._namespace = namespace
        self._path = path
        self._lines = _lines_of_names(tree)

    def settings(self) -> Settings:
        self._check_choose()
        tiers = self._tiers()
        models = [tier.model for tier in tiers]
        for name in _MODELS:
            if self._value(name) not in models:
                self._refuse(name, f"it is {self._value(name)!r}; it must be a model of TIERS: {', '.join(models)}")
        examples = self._value("EXAMPLES")
        if not isinstance(examples, tuple) or not examples or not all(isinstance(e, Example) for e in examples):
            self._refuse("EXAMPLES", "it must be a tuple of one or more example(...)")
        refusal = self._value("REFUSAL")
        if not isinstance(refusal, str) or not refusal:
            self._refuse("REFUSAL", "it must be a text")
        if not isinstance(self._value("SAFETY"), Safety):
            self._refuse("SAFETY", "it must be a Safety((...)) of checks")
        if not isinstance(self._value("SHADOW_POLICY"), str):
            self._refuse("SHADOW_POLICY", 'it must be the name of a file beside this one, or ""')
        if not isinstance(self._value("EARLY_START"), bool):
            self._refuse("EARLY_START", "it must be True or False")
        numbers = {name.lower(): self._number(name) for name in _NUMBERS}
        chosen = {name.lower(): self._value(name) for name in _MODELS}
        return Settings(
            tiers=tiers,
            fallback=self._fallback(models),
            first_token_seconds=self._first_token_seconds(models),
            max_in_flight=self._max_in_flight(models),
            examples=examples,
            safety=self._value("SAFETY"),
            refusal=refusal,
            shadow_policy=self._value("SHADOW_POLICY"),
            parameters=self._names("PARAMETERS"),
            template_values=self._names("TEMPLATE_VALUES"),
            time_zone=self._time_zone(),
            early_start=self._value("EARLY_START"),
            thinking=self._thinking(),
            **numbers,
            **chosen,
        )

    def _refuse(self, name: str, problem: str) -> None:
        raise BadPolicy(self._path, self._lines.get(name, 0), f"{name}: {problem}")

    def _value(self, name: str) -> Any:
        if name not in self._namespace and name not in _DEFAULTS:
            self._refuse(name, "it is missing")
        return self._namespace.get(name, _DEFAULTS.get(name))

    def _number(self, name: str) -> Any:
        kind, minimum, maximum = _NUMBERS[name]
        value = self._value(name)
        kinds = (int,) if kind is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not minimum <= value <= maximum:
            what = "a whole number" if kind is int else "a number"
            self._refuse(name, f"it is {value!r}; it must be {what} from {minimum:g} to {maximum:g}")
        return value

    def _names(self, name: str) -> tuple[str, ...]:
        value = self._value(name)
        if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
            self._refuse(name, "it must be a tuple of names; a tuple of one needs its comma")
        return tuple(value)

    def _thinking(self) -> str:
        if (value := self._value("THINKING")) not in (SHOW, CUT):
            self._refuse("THINKING", f"it is {value!r}; it must be {SHOW} or {CUT}")
        return str(value)

    def _time_zone(self) -> str:
        name = self._value("TIME_ZONE")
        try:
            clock.zone(str(name))
        except ValueError as error:
            self._refuse("TIME_ZONE", f"it is {error}")
        return str(name)

    def _check_choose(self) -> None:
        choose = self._value("choose")
        try:
            inspect.signature(choose).bind(None, None)
        except TypeError:
            self._refuse("choose", "it must be a function of (prompt, state)")

    def _tiers(self) -> tuple[Tier, ...]:
        tiers = self._value("TIERS")
        if not isinstance(tiers, tuple) or not tiers or not all(isinstance(tier, Tier) for tier in tiers):
            self._refuse("TIERS", "it must be a tuple of one or more Tier(...)")
        for key in ("name", "model"):
            values = [getattr(tier, key) for tier in tiers]
            if not all(isinstance(value, str) and value for value in values) or len(set(values)) < len(values):
                self._refuse("TIERS", f"each tier needs a {key} of its own")
        for tier in tiers:
            if not all(_is_cost(cost) for cost in (tier.cost_in, tier.cost_out)):
                self._refuse("TIERS", f"{tier.name}: cost_in and cost_out must be numbers from 0 on")
            context = tier.context_tokens
            if context is not None and (not isinstance(context, int) or context < 1):
                self._refuse(
                    "TIERS", f"{tier.name}: context_tokens is {context!r}; it must be a whole number from 1 on"
                )
        return tuple(tiers)

    def _fallback(self, models: list[str]) -> Mapping[str, tuple[str, ...]]:
        chains = self._value("FALLBACK")
        if not isinstance(chains, dict) or not all(isinstance(chain, tuple) for chain in chains.values()):
            self._refuse("FALLBACK", "it must be {model: (model, ...)}; a tuple of one model needs its comma")
        for model, chain in chains.items():
            unknown = [name for name in (model, *chain) if name not in models]
            if unknown:
                self._refuse("FALLBACK", f"{unknown[0]!r} is no model of TIERS: {', '.join(models)}")
        return dict(chains)

    def _first_token_seconds(self, models: list[str]) -> Mapping[str, float]:
        seconds = self._value("FIRST_TOKEN_SECONDS")
        if not isinstance(seconds, dict) or set(seconds) != set(models):
            self._refuse("FIRST_TOKEN_SECONDS", f"it must have one number for each of {', '.join(models)}")
        for model, value in seconds.items():
            if not _is_cost(value) or not 0.05 <= value <= 86_400:
                self._refuse("FIRST_TOKEN_SECONDS", f"{model}: it is {value!r}; it must be from 0.05 to 86400")
        return dict(seconds)

    def _max_in_flight(self, models: list[str]) -> Mapping[str, int]:
        most = self._value("MAX_IN_FLIGHT")
        if not isinstance(most, dict) or not set(most) <= set(models):
            self._refuse("MAX_IN_FLIGHT", f"it must have a number for some of {', '.join(models)}")
        for model, value in most.items():
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
                self._refuse("MAX_IN_FLIGHT", f"{model}: it is {value!r}; it must be a whole number from 1 to 10000")
        return dict(most)


def _is_cost(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _lines_of_names(tree: ast.Module) -> dict[str, int]:
    """Where each name is set or defined at the file's top level; the last place counts."""
    lines = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            lines[node.name] = node.lineno
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                lines[target.id] = target.lineno
    return lines
