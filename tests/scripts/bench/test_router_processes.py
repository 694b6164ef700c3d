"""Routers with few and with many processes get a policy that turns nobody away, and a table that compares them."""

from __future__ import annotations

import json

import pytest

from bls.contract import LARGE, SMALL
from bls.routing.policy_file import load_policy
from scripts.bench import router, router_processes


def test_the_policy_has_a_place_for_each_process_and_waits_for_long(tmp_path):
    settings = load_policy(router_processes.policy(tmp_path, 128)).settings
    assert settings.max_in_flight == {SMALL: 128, LARGE: 128} and settings.max_wait_seconds == 300


def test_the_tables_have_a_line_for_each_router_and_compare_each_load_with_the_first():
    found = {
        "start_a_process": {"seconds": 0.1, "cpu_seconds": 0.08},
        "idle": {"core_percent": 0.5, "wake_ups": 32.0},
        "pss_mb": 28.0,
    }
    lines = router_processes.processes_table({"rounds": 2, "processes_32": found}).splitlines()
    assert lines[1].split() == ["32", "100", "80", "0.50", "32.0", "28.0"]
    load = {"tokens_per_second": 700.0, "first_token_ms_p50": 500.0}
    table = router_processes.load_table(
        {
            "32 processes, 32 streams": {**load, "cpu_us_per_token": 500.0},
            "128 processes, 128 streams": {**load, "cpu_us_per_token": 550.0},
        }
    )
    assert [line.split()[-2:] for line in table.splitlines()[2:]] == [["500.0", "1.00"], ["550.0", "1.10"]]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_routers_are_compared_on_a_real_server(capsys):
    flags = ["--processes=2,4", "--streams=2,4", "--rounds=1", "--tokens=8", "--idle-seconds=1"]
    assert router.main(flags) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found["load"]) == {"2 processes, 2 streams", "4 processes, 2 streams", "4 processes, 4 streams"}
    assert all(each["cpu_us_per_token"] > 0 for each in found["load"].values())
    for count in (2, 4):
        assert found[f"processes_{count}"]["start_a_process"]["cpu_seconds"] > 0
        assert found[f"processes_{count}"]["pss_mb"] > 0
