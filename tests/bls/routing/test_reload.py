import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bls.paths import ROOT
from bls.routing.check import check, check_apart
from bls.routing.decision import ALL_WELL
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, version_of
from bls.routing.policy_thread import PolicyThread
from bls.routing.reload import LOOK_SECONDS, SOON_SECONDS, Policies
from bls.routing.settings import BadPolicy
from bls.routing.shadow_policy import ShadowPolicy
from bls.routing.shared_table import SharedTable
from bls.routing.verdicts import Verdicts
from tests.kubelet import ConfigMapVolume

SOURCE = SHIPPED.read_text()
BAD = SOURCE.replace("RETRIES = 1", "RETRIES = -1")


class Folder:
    """A policy file, its table, and checks that are counted."""

    def __init__(self, path):
        self.file = path / "policy.py"
        self.logs = path / "logs"
        self.checks = 0
        self.outcomes = []
        self.save(SOURCE)

    def save(self, source):
        """As an editor does, some time ago."""
        draft = self.file.with_suffix(".new")
        draft.write_text(source)
        os.utime(draft, (time.time() - 1000,) * 2)
        draft.replace(self.file)

    def check(self, path, source):
        self.checks += 1
        check(path, source)

    def policies(self, table="table", check=None):
        shared = SharedTable(self.file.parent / table)
        return Policies(self.file, Verdicts(shared, check or self.check), self.logs, self.outcomes.append)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def number(policies):
    return policies.current.settings.retries


def numbered(retries):
    return SOURCE.replace("RETRIES = 1", f"RETRIES = {retries}")


def test_an_edited_file_is_taken_at_the_next_look_and_checked_once_for_all(folder):
    all_of_them = [folder.policies() for _ in range(8)]
    assert folder.checks == 1
    folder.save(numbered(3))
    assert [policies.look() for policies in all_of_them] == [LOOK_SECONDS] * 8
    assert [number(policies) for policies in all_of_them] == [3] * 8
    assert (folder.checks, folder.outcomes) == (2, ["taken", "taken"])


def test_a_bad_file_is_refused_with_its_line_and_the_last_good_one_serves_on(folder, caplog):
    policies, other = folder.policies(), folder.policies()
    folder.save(BAD)
    for each in (policies, other, policies):
        each.look()
        assert number(each) == 1
    line = BAD.split("\n").index(next(each for each in BAD.split("\n") if each.startswith("RETRIES"))) + 1
    refusals = [record.getMessage() for record in caplog.records if "policy is refused" in record.getMessage()]
    assert len(refusals) == 1
    assert f"{folder.file}:{line}: RETRIES: it is -1" in refusals[0]
    assert folder.outcomes == ["taken", "refused"]
    folder.save(numbered(2))
    policies.look()
    assert number(policies) == 2


def test_requests_in_flight_keep_their_version(folder):
    policies = folder.policies()
    before = policies.current
    folder.save(numbered(2))
    policies.look()
    assert (before.settings.retries, policies.current.settings.retries) == (1, 2)
    assert before.version != policies.current.version


def test_a_file_that_is_just_being_written_is_left_for_a_moment(folder):
    policies = folder.policies()
    folder.file.write_text(SOURCE[:500])
    assert policies.look() == SOON_SECONDS
    assert folder.checks == 1
    os.utime(folder.file, (time.time() + 1000,) * 2)  # A clock that is wrong must not keep it for ever.
    assert policies.look() == LOOK_SECONDS
    assert folder.outcomes == ["taken", "refused"]


def test_a_file_that_is_gone_and_comes_back(folder, caplog):
    policies, other = folder.policies(), folder.policies()
    folder.file.unlink()
    for each in (policies, other, policies):
        each.look()
    assert number(policies) == 1
    assert folder.outcomes == ["taken", "refused"]
    assert "No such file" in caplog.text
    folder.save(SOURCE)
    assert policies.look() == LOOK_SECONDS
    assert number(policies) == 1


def test_a_process_that_starts_over_a_bad_file_serves_the_last_good_version(folder, caplog):
    first = folder.policies()
    folder.save(numbered(4))
    first.look()
    folder.save(BAD)
    second = folder.policies()
    assert number(second) == 4
    assert folder.outcomes == ["taken", "taken", "refused"]
    assert f"the last good policy, {version_of(numbered(4).encode())}, serves instead" in caplog.text


def test_a_server_that_starts_over_a_bad_file_serves_the_copy_of_the_last_good_version(folder):
    folder.save(numbered(4))
    folder.policies()
    folder.save(BAD)
    assert number(folder.policies(table="of another server")) == 4


def test_without_any_good_version_the_model_does_not_start_and_says_why(folder):
    folder.save(BAD)
    with pytest.raises(RuntimeError, match=r"there is no good policy: .*policy\.py:\d+: RETRIES: it is -1"):
        folder.policies()


def test_a_copy_that_is_no_longer_good_is_not_served(folder):
    folder.policies()
    (copy,) = folder.logs.iterdir()
    copy.write_text("nonsense(")
    folder.save(BAD)
    with pytest.raises(RuntimeError, match="no good policy"):
        folder.policies(table="of another server")


def test_a_folder_that_cannot_be_written_costs_the_copy_and_no_more(folder, caplog):
    folder.logs.write_text("a file")
    assert number(folder.policies()) == 1
    assert "no copy of the last good policy is kept" in caplog.text


def test_while_one_process_checks_the_others_serve_on_and_look_again_soon(folder):
    began, done = threading.Event(), threading.Event()

    def check_slowly(path, source):
        if folder.checks:  # The first is the one at the start.
            began.set()
            assert done.wait(60)
        folder.check(path, source)

    slow, waiting = folder.policies(check=check_slowly), folder.policies()
    folder.save(numbered(2))
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(slow.look)
        assert began.wait(60)
        assert waiting.look() == SOON_SECONDS
        assert number(waiting) == 1
        done.set()
        looking.result()
    assert waiting.look() == LOOK_SECONDS
    assert (number(slow), number(waiting)) == (2, 2)


def test_a_process_that_is_killed_over_a_check_leaves_it_to_the_next(folder):
    policies = folder.policies()
    script = (
        "import sys, time; from pathlib import Path; from bls.routing.shared_table import SharedTable\n"
        "with SharedTable(Path(sys.argv[1])).try_check() as mine: print(mine, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(folder.file.parent / "table")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout.readline() == b"True\n"
        folder.save(numbered(2))
        assert policies.look() == SOON_SECONDS
        process.kill()
    assert policies.look() == LOOK_SECONDS
    assert number(policies) == 2


def test_verdicts_that_a_killed_process_left_half_written_are_found_again(folder):
    policies = folder.policies()
    SharedTable(folder.file.parent / "table").write_text(lambda before: before[: len(before) // 2])
    folder.save(numbered(2))
    policies.look()
    assert number(policies) == 2


def test_the_policy_thread_takes_a_file_while_requests_are_decided(folder):
    policies = folder.policies(check=check_apart)
    health = EngineHealth(SharedTable(folder.file.parent / "table"))
    policy_thread = PolicyThread(policies, ShadowPolicy(SHIPPED.parent, Verdicts(SharedTable(None))))
    prompt = policies.current.settings.examples[0].prompt
    try:
        folder.save(numbered(7))
        while number(policies) != 7:
            assert policies.current.decide(prompt, health.state(policies.current.settings)).reason == "default"
    finally:
        policy_thread.close()


def test_many_edits_good_and_bad_never_leave_it_without_a_good_one(folder):
    policies = folder.policies()
    good = number(policies)
    for turn in range(60):
        if turn % 3 == 2:
            good = turn % 10
            folder.save(numbered(good))
        else:
            folder.save(SOURCE[: turn * 97] if turn % 3 else SOURCE.replace("Decision(", "Decison(", turn + 1))
        policies.look()
        assert number(policies) == good
        assert policies.current.decide(policies.current.settings.examples[0].prompt, ALL_WELL).reason == "default"


def test_the_check_of_a_relative_path_finds_the_same_file(tmp_path, monkeypatch):
    shutil.copy(SHIPPED, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    check_apart(Path("mine.py"), Path("mine.py").read_bytes())
    with pytest.raises(BadPolicy, match=r"^mine\.py:"):
        check_apart(Path("mine.py"), BAD.encode())


def test_a_config_map_that_kubelet_swaps_is_taken_and_a_bad_one_refused(tmp_path):
    """From one link to another folder, whose file has the same name and may have the same size."""
    volume, outcomes = ConfigMapVolume(tmp_path / "policy", {"policy.py": SOURCE}), []
    file = volume.folder / "policy.py"
    policies = Policies(file, Verdicts(SharedTable(tmp_path / "table"), check), tmp_path / "logs", outcomes.append)
    for retries in (2, 3):
        volume.update({"policy.py": numbered(retries)})
        settle(policies)
        assert number(policies) == retries
    volume.update({"policy.py": BAD})
    settle(policies)
    assert number(policies) == 3
    assert outcomes == ["taken", "taken", "taken", "refused"]


def settle(policies):
    """Looks until nothing is new any more."""
    while policies.look() == SOON_SECONDS:
        time.sleep(SOON_SECONDS)


def test_a_server_that_starts_over_a_bad_config_map_serves_the_copy_of_the_last_good_one(tmp_path):
    """Though each version lies in another folder."""
    volume = ConfigMapVolume(tmp_path / "policy", {"policy.py": numbered(4)})
    file, logs = volume.folder / "policy.py", tmp_path / "logs"
    Policies(file, Verdicts(SharedTable(tmp_path / "first"), check), logs)
    volume.update({"policy.py": BAD})
    assert number(Policies(file, Verdicts(SharedTable(tmp_path / "second"), check), logs)) == 4


def test_no_look_in_the_middle_of_a_swap_finds_half_a_config_map(tmp_path):
    volume, outcomes = ConfigMapVolume(tmp_path / "policy", {"policy.py": SOURCE}), []
    file = volume.folder / "policy.py"
    policies = Policies(file, Verdicts(SharedTable(tmp_path / "table"), check), None, outcomes.append)
    versions = [numbered(retries) for retries in (2, 3)]
    is_over = threading.Event()

    def swap():
        for turn in range(100):
            volume.update({"policy.py": versions[turn % 2]})
        is_over.set()

    writer = threading.Thread(target=swap)
    writer.start()
    while not is_over.is_set():
        policies.look()
    writer.join()
    settle(policies)
    assert number(policies) == 3
    assert "refused" not in outcomes
