from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scripts.server import instance_groups
from scripts.server.instance_groups import are_single, renewed, single


def group(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "KIND_CPU", "count": count, **more}


COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def signature(each: dict[str, Any]) -> str:
    """What Triton compares."""
    return repr({key: value for key, value in each.items() if key not in ("name", "count")})


@given(COUNTS)
def test_each_instance_gets_a_group_that_differs_from_the_others(counts):
    groups = single([group(f"m_{number}", count) for number, count in enumerate(counts)])
    assert len(groups) == sum(counts)
    assert len({signature(each) for each in groups}) == len({each["name"] for each in groups}) == len(groups)
    assert len(groups) == 1 or are_single(groups)
    assert single(groups) == groups


@given(COUNTS.filter(lambda counts: sum(counts) > 1), st.lists(st.sets(st.integers(0, 44)), max_size=5))
def test_what_is_renewed_differs_from_all_that_was_there_and_the_rest_is_as_it_was(counts, rounds):
    groups = single([group(f"m_{number}", count) for number, count in enumerate(counts)])
    for numbers in rounds:
        chosen = {f"{groups[number % len(groups)]['name']}_0" for number in numbers}
        changed = renewed(groups, chosen)
        assert changed is not None and are_single(changed)
        before = {signature(each) for each in groups}
        for old, new in zip(groups, changed, strict=True):
            assert old["name"] == new["name"]
            assert (signature(new) not in before) if f"{old['name']}_0" in chosen else new == old
        groups = changed


def test_an_instance_that_is_not_there_is_not_renewed():
    groups = single([group("m_0", 3)])
    assert renewed(groups, {"m_0_1_0", "m_0_7_0"}) is None
    assert renewed(groups, {""}) is None


def test_instances_of_one_group_cannot_be_renewed_alone():
    assert renewed([group("m_0", 3)], {"m_0_1"}) is None


def test_a_model_of_one_instance_is_loaded_as_a_whole():
    groups = single([group("m_0", 1)])
    assert not are_single(groups) and renewed(groups, {"m_0_0"}) is None


def test_limits_of_a_person_and_instances_on_gpus_stay_as_they_are():
    limited = [group("m_0", 3, rate_limiter={"priority": 2, "resources": [{"name": "r", "count": 1}]})]
    on_gpus = [{"name": "m_0", "kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}]
    for groups in (limited, on_gpus):
        assert single(groups) == groups
        assert not are_single(groups)


def test_a_priority_of_nothing_else_is_kept():
    groups = [group("a", 1, rate_limiter={"priority": 1, "resources": []}), group("b", 1, rate_limiter={"priority": 2})]
    changed = renewed(groups, {"a_0"})
    assert changed == [group("a", 1, rate_limiter={"priority": 3, "resources": []}), groups[1]]
    assert instance_groups.single(changed) == changed
