from __future__ import annotations

import os

import pytest

from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.shadow_policy import ShadowPolicy
from bls.routing.shared_table import SharedTable
from bls.routing.verdicts import Verdicts


def settings_that_name(name):
    source = SHIPPED.read_text().replace('SHADOW_POLICY = ""', f'SHADOW_POLICY = "{name}"')
    return load_policy(SHIPPED, source.encode()).settings


def shadow_in(folder):
    return ShadowPolicy(folder, Verdicts(SharedTable(folder / "table")))


def test_follows_the_file_that_the_policy_names_and_forgets_one_that_it_names_no_more(tmp_path):
    shadow, settings = shadow_in(tmp_path), settings_that_name("next.py")
    (tmp_path / "next.py").write_text(SHIPPED.read_text())
    shadow.look(settings)
    first = shadow.current
    assert first is not None and first.settings.retries == 1
    shadow.look(settings)
    assert shadow.current is first
    (tmp_path / "newer.py").write_text(SHIPPED.read_text().replace("RETRIES = 1", "RETRIES = 3"))
    os.replace(tmp_path / "newer.py", tmp_path / "next.py")
    shadow.look(settings)
    assert shadow.current is not None and shadow.current.settings.retries == 3
    shadow.look(settings_that_name(""))
    assert shadow.current is None


def test_a_file_that_is_missing_or_no_good_is_none_and_said_once(tmp_path, caplog):
    shadow, settings = shadow_in(tmp_path), settings_that_name("next.py")
    for _ in range(3):
        shadow.look(settings)
    assert shadow.current is None
    assert len(caplog.records) == 1
    (tmp_path / "next.py").write_text("choose = 5\n")
    for _ in range(3):
        shadow.look(settings)
    assert shadow.current is None
    assert "next.py" in caplog.records[1].getMessage() and len(caplog.records) == 2


HOLDS = ["while True: pass\n", "import time; time.sleep(3600)\n", "import os; os._exit(1)\n"]


@pytest.mark.parametrize("source", HOLDS)
def test_a_file_that_would_hold_or_end_the_process_is_tried_in_a_child(tmp_path, caplog, monkeypatch, source):
    monkeypatch.setattr("bls.routing.check.WALL_SECONDS", 5)
    monkeypatch.setattr("bls.routing.check.START_SECONDS", 1)
    shadow, settings = shadow_in(tmp_path), settings_that_name("next.py")
    (tmp_path / "next.py").write_text(SHIPPED.read_text() + source)
    shadow.look(settings)
    assert shadow.current is None
    assert "next.py" in caplog.text and len(caplog.records) == 1


def test_one_process_checks_and_the_others_follow(tmp_path):
    checked = []
    table = SharedTable(tmp_path / "table")
    settings = settings_that_name("next.py")
    (tmp_path / "next.py").write_text(SHIPPED.read_text())
    for _ in range(3):
        shadow = ShadowPolicy(tmp_path, Verdicts(table, lambda path, source: checked.append(path)))
        shadow.look(settings)
        assert shadow.current is not None
    assert len(checked) == 1
