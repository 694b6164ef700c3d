from __future__ import annotations

import os
import subprocess
import sys
import threading

from scripts.host import processes


def test_the_tree_holds_a_process_its_children_and_theirs():
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        grandchild = int(child.stdout.readline())
        try:
            assert {os.getpid(), child.pid, grandchild} <= set(processes.tree(os.getpid()))
            assert set(processes.tree(child.pid)) == {child.pid, grandchild}
            assert processes.role(grandchild) == "sleep"
        finally:
            os.kill(grandchild, 9)


def test_processes_and_threads_that_end_during_a_look_take_no_other_from_it():
    done = threading.Event()

    def churn():
        while not done.is_set():
            subprocess.run(["true"], check=True)
            threading.Thread(target=lambda: None).start()

    threads = [threading.Thread(target=churn) for _ in range(2)]
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            for thread in threads:
                thread.start()
            assert all(child.pid in processes.tree(os.getpid()) for _ in range(100))
        finally:
            done.set()
            child.kill()
            for thread in threads:
                thread.join()


def test_a_process_that_is_gone_has_no_time_no_memory_and_serves_no_model():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert processes.cpu_seconds(gone.pid) == {}
    assert processes.memory_bytes(gone.pid) == {}
    assert processes.stub_model(gone.pid) == ""


def test_processes_are_found_by_a_variable_that_they_were_started_with():
    env = {**os.environ, "OF_THIS_TEST": "a value"}
    with subprocess.Popen(["sleep", "60"], env=env) as child:
        assert processes.with_variable("OF_THIS_TEST", "a value") == [child.pid]
        assert processes.with_variable("OF_THIS_TEST", "a val") == []
        assert processes.is_alive(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still there
        assert not processes.is_alive(child.pid)
    assert not processes.is_alive(child.pid)
