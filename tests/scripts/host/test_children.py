"""Groups of processes that are killed whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts.host import children, processes


@pytest.mark.timeout(60)
def test_a_dead_process_that_nobody_has_waited_for_is_not_waited_for():
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    children.kill_group(child.pid, patience_s=3600)
    assert not processes.has_living(child.pid)
    assert child.wait() == -9


def test_all_of_a_group_is_killed():
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as head:
        assert head.stdout
        grandchild = int(head.stdout.readline())
        assert processes.has_living(head.pid)
        children.kill_group(head.pid)
        assert not processes.is_alive(grandchild)
