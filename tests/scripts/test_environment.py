from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from bls.paths import ROOT, WORDS_VARIABLE
from engines.classifier.manifest import CLASSIFIER
from scripts import environment
from scripts.environment import Environment, SetupFailed
from scripts.host.interruption import Interrupted
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from tests import small_bert
from tests.fakes import engine_folders


class FakeEnvironment(Environment):
    """Records what would be run; `broken` is the command word at which the set-up fails or is interrupted."""

    def __init__(self, root: Path, broken: str = "", error: BaseException | None = None) -> None:
        super().__init__(root)
        self.ran: list[str] = []
        self.broken, self.error = broken, error

    def _run(self, command, progress, *rest):
        is_engine = "scripts.build_engines" in command
        word = command[-1] if is_engine else Path(command[-1]).name
        self.ran.append(word)
        if word == self.broken:
            raise self.error or SetupFailed("broken")
        if word == "compile":
            self.compiled_words.touch()
        if is_engine:
            folder = self.root / "engines" / "built" / word
            folder.mkdir(parents=True)
            (folder / "engine.json").touch()
            if word == CLASSIFIER:
                small_bert.manifest(folder).save()

    def _place_backend(self, progress):
        environment._write(*self.stamp("complete"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("numpy==1.26.4\n")
    (tmp_path / "requirements-dev.txt").write_text("pytest==9.2.0\n")
    engine_folders(tmp_path / "model_repository")
    (tmp_path / "words" / "deny").mkdir(parents=True)
    (tmp_path / "words" / "deny" / "fraud.txt").write_text("scam\n")
    return tmp_path


def ensure(made: Environment, dev: bool = False) -> Environment:
    with made.ensured(Progress(io.StringIO()), dev):
        assert made.is_complete(dev)
        assert made.missing_engines() == []
    return made


def test_the_first_start_makes_everything_and_the_second_nothing(root):
    assert ensure(FakeEnvironment(root)).ran == [".venv", "requirements.txt", "small", "large", "classifier", "compile"]
    assert ensure(FakeEnvironment(root)).ran == []


def test_the_packages_for_tests_come_on_top(root):
    ensure(FakeEnvironment(root))
    assert ensure(FakeEnvironment(root), dev=True).ran == ["requirements-dev.txt"]
    assert ensure(FakeEnvironment(root), dev=True).ran == []


def test_another_lock_file_makes_the_packages_anew_but_not_the_engines(root):
    ensure(FakeEnvironment(root))
    (root / "requirements.txt").write_text("numpy==1.26.3\n")
    assert ensure(FakeEnvironment(root)).ran == [".venv", "requirements.txt"]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), Interrupted(15)])
def test_a_set_up_that_broke_off_is_not_taken_for_complete(root, error):
    broken = FakeEnvironment(root, "requirements.txt", error)
    with pytest.raises((SetupFailed, KeyboardInterrupt, Interrupted)):
        ensure(broken)
    assert not broken.is_complete(dev=False)
    assert ensure(FakeEnvironment(root)).ran == [".venv", "requirements.txt", "small", "large", "classifier", "compile"]


def test_remaking_the_packages_that_was_interrupted_leaves_no_old_stamp(root):
    ensure(FakeEnvironment(root))
    (root / "requirements.txt").write_text("numpy==1.26.3\n")
    with pytest.raises(SetupFailed):
        ensure(FakeEnvironment(root, ".venv"))
    (root / "requirements.txt").write_text("numpy==1.26.4\n")
    assert not FakeEnvironment(root).is_complete(dev=False)


def test_an_engine_that_failed_is_built_again_alone(root):
    with pytest.raises(SetupFailed):
        ensure(FakeEnvironment(root, "large"))
    assert ensure(FakeEnvironment(root)).ran == ["large", "classifier", "compile"]


def test_changed_word_lists_are_compiled_at_the_next_start(root):
    made = ensure(FakeEnvironment(root))
    for change in (lambda: (root / "words" / "deny" / "drugs.txt").write_text("dope\n"), made.compiled_words.unlink):
        os.utime(made.compiled_words, (1, 1))
        change()
        assert ensure(FakeEnvironment(root)).ran == ["compile"]
        assert ensure(FakeEnvironment(root)).ran == []


def test_lists_that_lie_elsewhere_are_not_compiled_here(root, monkeypatch):
    """As in a container whose root can't be written."""
    made = ensure(FakeEnvironment(root))
    made.compiled_words.unlink()
    assert made.needs_words()
    monkeypatch.setenv(WORDS_VARIABLE, "/var/lib/llm-router/words")
    assert not made.needs_words()


def test_whatever_changes_in_the_code_or_the_data_that_compile_lists_they_are_compiled_anew(root):
    sources = [path for path in (ROOT / "bls" / "words").rglob("*") if path.suffix in (".py", ".txt")]
    assert len(sources) > 10
    for source in sources:
        made = ensure(FakeEnvironment(root))
        os.utime(made.compiled_words, (1, 1))
        changed = root / source.relative_to(ROOT)
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.touch()
        assert ensure(FakeEnvironment(root)).ran == ["compile"], source
        changed.unlink()


def test_word_lists_with_a_mistake_leave_those_compiled_before_in_use_and_stop_a_first_start(root):
    made = ensure(FakeEnvironment(root))
    os.utime(made.compiled_words, (1, 1))
    assert ensure(FakeEnvironment(root, "compile")).ran == ["compile"]
    made.compiled_words.unlink()
    with pytest.raises(SetupFailed):
        ensure(FakeEnvironment(root, "compile"))


def test_packages_in_use_by_a_server_are_not_made_anew(root):
    with FakeEnvironment(root).ensured(Progress(io.StringIO())):
        (root / "requirements.txt").write_text("numpy==1.26.3\n")
        late = FakeEnvironment(root)
        with pytest.raises(Refused, match="a server is running from"):
            ensure(late)
        assert late.ran == []


def test_two_servers_of_one_folder_share_a_finished_set_up(root):
    with FakeEnvironment(root).ensured(Progress(io.StringIO())):
        assert ensure(FakeEnvironment(root)).ran == []


def test_too_little_disk_is_refused_before_anything_is_made(root, monkeypatch):
    monkeypatch.setattr(environment, "VENV_DISK_MIB", 10**9)
    made = FakeEnvironment(root)
    with pytest.raises(Refused, match="the set-up needs"):
        ensure(made)
    assert made.ran == []
    assert not made.venv.exists()


def test_a_failed_step_says_its_last_line_and_where_the_rest_is(root):
    made = Environment(root)
    made.log.parent.mkdir()
    with pytest.raises(SetupFailed, match=r"no such weights \(the full output is in .*setup\.log\)"):
        made._run(["/bin/sh", "-c", "echo begin; echo no such weights; exit 3"], Progress(io.StringIO()), str.strip)
    assert made.log.read_text().endswith("begin\nno such weights\n")


def test_what_the_server_runs_with_is_said_in_one_place(root, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/somewhere")
    variables = Environment(root).variables()
    assert variables["PYTHONPATH"] == str(root)
    assert variables["PATH"].startswith(f"{root}/.venv/bin:")
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert "PYTHONHOME" not in variables


def test_a_complete_set_up_that_cannot_be_written_is_used_as_it_is(root, monkeypatch):
    ensure(FakeEnvironment(root))

    def refuse_to_write(path, mode="r", *rest, opened=Path.open, **options):
        if "a" in mode or "w" in mode:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", refuse_to_write)
    assert ensure(FakeEnvironment(root)).ran == []
    (root / ".venv.use.lock").unlink()
    with pytest.raises(SetupFailed, match="Read-only file system"):
        ensure(FakeEnvironment(root))
