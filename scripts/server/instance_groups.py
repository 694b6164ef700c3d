"""A model's instances as groups of one each, which differ: so a single one can be replaced.

Triton compares the groups of a new config with those that it has and keeps each instance whose group is there as it
was; of equal ones it keeps as many as are wanted, not those that a person means. Names don't count. What tells them
apart here is the rate limiter's priority, which Triton reads only where it is started with --rate-limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

Groups = list[dict[str, Any]]
_FIRST_PRIORITY = 1000  # With --rate-limit, an instance of twice the number gets half the turns: these get the same.


def single(groups: Groups) -> Groups:
    """The same instances, each in a group of its own; as they are where that can't be: their rate is limited, or they
    aren't on CPUs."""
    if are_single(groups) or any(_limits(group) or group.get("kind") != "KIND_CPU" for group in groups):
        return groups
    each = [(group, number) for group in groups for number in range(group.get("count", 1))]
    return [
        {**group, "name": f"{group['name']}_{number}", "count": 1, "rate_limiter": {"priority": priority}}
        for priority, (group, number) in enumerate(each, start=_FIRST_PRIORITY)
    ]


def are_single(groups: Groups) -> bool:
    """Whether there are several, each holds one instance and differs from the others."""
    priorities = {_priority(group) for group in groups}
    alone = all(group.get("count", 1) == 1 and group.get("kind") == "KIND_CPU" for group in groups)
    return len(groups) > 1 and alone and len(priorities) == len(groups)


def renewed(groups: Groups, instances: Collection[str]) -> Groups | None:
    """The groups with others in the place of those of `instances`, as Triton names them. None unless all are single and
    these among them."""
    by_instance = {f"{group['name']}_0": group for group in groups}
    if not are_single(groups) or not by_instance.keys() >= set(instances):
        return None
    priorities = count(max(map(_priority, groups)) + 1)
    return [
        {**group, "rate_limiter": {**_limits(group), "priority": next(priorities)}} if name in instances else group
        for name, group in by_instance.items()
    ]


def _limits(group: Mapping[str, Any]) -> dict[str, Any]:
    return group.get("rate_limiter") or {}


def _priority(group: Mapping[str, Any]) -> int:
    return int(_limits(group).get("priority", 0))
