"""What a router process builds for its policy, on a folder of its own."""

import os
import time

import pytest

from bls.contract import LARGE, SMALL
from bls.routing import server_files
from bls.routing import service as policy_service
from bls.routing.decision import Prompt
from bls.routing.policy_file import SHIPPED, version_of
from bls.routing.service import (
    BREAKERS_OPENED,
    POLICY_IN_FORCE,
    POLICY_RELOADS,
    PolicyService,
    in_force_value,
)
from tests.fakes import FakeMetrics, engine_folders

# The service sets the timer signal that pytest's own limit would use.
pytestmark = pytest.mark.timeout(60, method="thread")


@pytest.fixture
def shared_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(server_files, "SHARED_MEMORY", tmp_path / "shm")
    (tmp_path / "shm").mkdir()
    return tmp_path / "shm"


def test_the_table_has_the_servers_prefix_where_there_is_one(shared_memory, monkeypatch):
    monkeypatch.setenv(server_files.PREFIX_VARIABLE, "llm_router_shm_1_ab_")
    assert policy_service.table_path() == shared_memory / "llm_router_shm_1_ab_table"


def test_else_the_processes_of_one_parent_share_it(shared_memory, monkeypatch):
    monkeypatch.delenv(server_files.PREFIX_VARIABLE, raising=False)
    name = policy_service.table_path().name
    prefix, parent, started, end = name.rsplit("_", 3)
    assert (prefix, parent, end) == ("llm_router_shm", str(os.getppid()), "table")
    assert int(started) > 0


def test_it_decides_by_the_file_that_is_named_and_counts_what_happens(shared_memory, tmp_path):
    (tmp_path / "mine.py").write_text(SHIPPED.read_text().replace("RETRIES = 1", "RETRIES = 3"))
    metrics = FakeMetrics()
    service = PolicyService(engine_folders(tmp_path / "model_repository"), "mine.py", metrics)
    try:
        policy = service.routing.policy
        assert policy.settings.retries == 3
        assert metrics.values[POLICY_RELOADS, "taken"] == 1
        assert f"{metrics.values[(POLICY_IN_FORCE,)]:012x}" == policy.version
        assert [path.name[:16] for path in (tmp_path / "logs").iterdir()] == ["last_good_policy"]
        prompt = Prompt({SMALL: 5, LARGE: 5}, {SMALL: 99, LARGE: 99}, 16)
        for _ in range(policy.settings.breaker_failures):
            attempt = service.routing.route(policy, prompt).begin()
            attempt.failed()
            attempt.close()
        assert metrics.values[BREAKERS_OPENED, SMALL] == 1
    finally:
        service.close()


def test_without_a_good_policy_it_is_not_made_and_says_why(shared_memory, tmp_path):
    (tmp_path / "mine.py").write_text("nonsense(")
    with pytest.raises(RuntimeError, match=r"mine\.py:1: SyntaxError"):
        PolicyService(engine_folders(tmp_path / "model_repository"), "mine.py", FakeMetrics())


def test_an_alert_can_see_the_first_refusal_and_the_first_breaker(shared_memory, tmp_path):
    metrics = FakeMetrics()
    PolicyService(engine_folders(tmp_path / "model_repository"), str(SHIPPED), metrics).close()
    assert (POLICY_RELOADS, "refused") in metrics.values
    assert {(BREAKERS_OPENED, SMALL), (BREAKERS_OPENED, LARGE)} <= metrics.values.keys()


def test_the_version_that_decides_is_shown_by_one_series_however_many_there_were(shared_memory, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SHIPPED.read_text())
    metrics = FakeMetrics()
    service = PolicyService(engine_folders(tmp_path / "model_repository"), "mine.py", metrics)
    try:
        for retries in (3, 4):
            file.write_text(f"{SHIPPED.read_text()}\nRETRIES = {retries}\n")
            version = version_of(file.read_bytes())
            end = time.monotonic() + 50
            while metrics.values[(POLICY_IN_FORCE,)] != in_force_value(version) and time.monotonic() < end:
                time.sleep(0.05)
            assert [value for name, value in metrics.values.items() if name[0] == POLICY_IN_FORCE] == [int(version, 16)]
    finally:
        service.close()


@pytest.mark.parametrize("version", ["000000000000", "ffffffffffff", version_of(b"")])
def test_a_version_is_the_same_as_a_number_of_the_metrics_page(version):
    assert f"{int(float(f'{float(in_force_value(version)):.16g}')):012x}" == version
