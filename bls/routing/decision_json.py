"""Prompts and states as JSON and back: what the log of decisions holds, and what a check says of a prompt it tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any

from bls.routing.decision import Everywhere, Prompt, State, TierState
from bls.routing.old_names import with_new_names

_FOR_ALL = "*"


def prompt_to_json(prompt: Prompt) -> dict[str, Any]:
    """Only what differs from Prompt's defaults; never a text, as a Prompt holds none."""
    found: dict[str, Any] = {}
    for name, default in _PROMPT_DEFAULTS.items():
        value = getattr(prompt, name)
        if default is MISSING or value != default:
            found[name] = _plain(value) if isinstance(value, Mapping) else value
    return found


def prompt_from_json(found: Mapping[str, Any]) -> Prompt:
    """Raises TypeError or KeyError for what no Prompt was written as."""
    given = with_new_names(found)
    for name in ("tokens", "contexts"):
        given[name] = _numbers(given[name])
    return Prompt(**given)


def state_to_json(state: State) -> dict[str, dict[str, Any]]:
    return {
        model: {name: getattr(tier, name) for name, default in _TIER_DEFAULTS.items() if getattr(tier, name) != default}
        for model, tier in state.tiers.items()
    }


def state_from_json(found: Mapping[str, Mapping[str, Any]], now: str = "") -> State:
    """`now` in ISO's form; older recordings have none. Raises TypeError or ValueError for what was no State."""
    tiers = {model: TierState(**values) for model, values in found.items()}
    return State(tiers, datetime.fromisoformat(now)) if now else State(tiers)


def _plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {**({_FOR_ALL: mapping.number} if isinstance(mapping, Everywhere) else {}), **mapping}


def _numbers(found: Mapping[str, int]) -> Mapping[str, int]:
    if _FOR_ALL not in found:
        return dict(found)
    numbers = Everywhere(found[_FOR_ALL])
    numbers.update({model: number for model, number in found.items() if model != _FOR_ALL})
    return numbers


def _defaults(of: type) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for each in fields(of):
        defaults[each.name] = {} if each.default_factory is not MISSING else each.default
    return defaults


_PROMPT_DEFAULTS = _defaults(Prompt)
_TIER_DEFAULTS = _defaults(TierState)
