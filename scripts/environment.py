"""Set-up: .venv with the pinned packages, tritonserver's backend folder, engines, word lists. Each part once.

Runs on any suitable Python with nothing installed. `.venv/complete` is written last, so an interrupted set-up is
never taken for a finished one: what is not complete is made anew (pip's cache keeps what was downloaded).

    scripts/install [--dev]
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from scripts.host import interpreter, preflight
from scripts.host.checkout import Checkout
from scripts.host.file_lock import open_lock, try_lock
from scripts.host.interruption import Interrupted, interruptible
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.host.step import StepFailed, run_step
from scripts.host.step_output import engine_status, first_line, last_line, pip_reason, pip_status

REFUSED, SETUP_FAILED = 2, 5  # exit statuses, explained in scripts/serve.py
VENV_DISK_MIB = 1024  # the packages (700 MB), and pip's downloads while it works
ENGINES_DISK_MIB = 512


class SetupFailed(Exception):
    """A step failed; the message is one line, the rest is in the log."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"set-up failed: {reason}")


class Environment(Checkout):
    """Makes what a checkout lacks: `ensured`."""

    @contextmanager
    def ensured(self, progress: Progress, dev: bool = False) -> Iterator[None]:
        """Makes what is missing, and keeps others from remaking it while the block runs.

        Raises Refused or SetupFailed.
        """
        with ExitStack() as stack:
            try:
                self._ensure(stack, progress, dev)
            except OSError as error:
                raise SetupFailed(f"{error.strerror or error}: {error.filename or self.root}") from None
            yield

    def _ensure(self, stack: ExitStack, progress: Progress, dev: bool) -> None:
        """`stack` gets the lock that says that the packages are in use."""
        use = stack.enter_context(open_lock(self.root / ".venv.use.lock"))
        with open_lock(self.root / ".venv.setup.lock") as setup:
            if not try_lock(setup, fcntl.LOCK_EX):
                progress.say("another set-up of this folder is running; waiting for it to end")
                fcntl.flock(setup, fcntl.LOCK_EX)
            self._make_what_is_missing(use, progress, dev)
            fcntl.flock(use, fcntl.LOCK_SH)

    def _make_what_is_missing(self, use: IO[bytes], progress: Progress, dev: bool) -> None:
        steps: list[Callable[[Progress], None]] = []
        if not self.is_complete(dev=False):
            if not try_lock(use, fcntl.LOCK_EX):
                raise Refused("the packages must be reinstalled, but a server is running from .venv: stop it first")
            preflight.check_disk(self.root, VENV_DISK_MIB, "the set-up")
            steps += [self._make_venv, self._install, self._place_backend]
        if dev and not self.is_complete(dev=True):
            steps += [self._install_dev]
        missing = self.missing_engines()
        if missing:
            preflight.check_disk(self.root, ENGINES_DISK_MIB, "building the engines")
            steps += [_engine_step(self, tier) for tier in missing]
        if self.needs_words():
            steps += [self._compile_words]
        if steps:
            self.log.parent.mkdir(exist_ok=True)
            self.log.write_text("")
        for step in steps:
            step(progress)

    def _make_venv(self, progress: Progress) -> None:
        self.venv.mkdir(exist_ok=True)
        (self.venv / "complete").unlink(missing_ok=True)
        progress.step("set-up, .venv", "a virtual environment")
        base = getattr(sys, "_base_executable", sys.executable)  # never .venv's own, which goes away
        self._run([base, "-m", "venv", "--clear", str(self.venv)], progress, lambda line: None)
        progress.done()

    def _install(self, progress: Progress) -> None:
        progress.step("set-up, packages", "tritonserver, OpenVINO and others, 270 MB to download")
        self._pip(progress, "requirements.txt")

    def _install_dev(self, progress: Progress) -> None:
        progress.step("set-up, packages for checks and tests", "40 MB to download")
        self._pip(progress, "requirements-dev.txt")
        _write(*self.stamp("complete-dev"))

    def _pip(self, progress: Progress, requirements: str) -> None:
        temporary = self.venv / "tmp"  # on the disk that was checked, and cleared with the rest
        temporary.mkdir(exist_ok=True)
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
        ]
        command = [str(self.python), "-m", "pip", "install", *options, "-r", str(self.root / requirements)]
        # Settings of a person that would put the packages elsewhere.
        elsewhere = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT", "PIP_CONSTRAINT"}
        env = {name: value for name, value in self.variables().items() if name not in elsewhere}
        env.update(TMPDIR=str(temporary), PIP_USER="0", PYTHONPATH="")
        self._run(command, progress, pip_status, pip_reason, env)
        shutil.rmtree(temporary, ignore_errors=True)
        progress.done()

    def _place_backend(self, progress: Progress) -> None:
        """Makes Triton's backend folder: the wheel's, with the stub of this Python beside its library."""
        wheel = self.site_packages / "pytriton" / "tritonserver"
        stub = wheel / "python_backend_stubs" / "{}.{}".format(*sys.version_info[:2]) / "triton_python_backend_stub"
        target = self.backends / "python"
        libpython = Path(interpreter.find_libpython() or "")
        try:
            shutil.copytree(wheel / "backends" / "python", target, dirs_exist_ok=True)
            shutil.copy2(stub, target)
            library = self.libraries[1] / libpython.name
            library.parent.mkdir(exist_ok=True)
            # A link, so that no other library of that folder is put before the system's.
            library.symlink_to(libpython.resolve())
        except OSError as error:
            raise SetupFailed(f"cannot prepare tritonserver's python backend: {error}") from None
        _write(*self.stamp("complete"))

    def build_engine(self, tier: str, progress: Progress) -> None:
        """Runs scripts/build_engines for one tier, or for the classifier."""
        progress.step(f"set-up, engine {tier}", "weights and tokenizer, 80 to 100 MB")
        command = [str(self.python), "-m", "scripts.build_engines", tier]
        self._run(command, progress, engine_status)
        progress.done()

    def _compile_words(self, progress: Progress) -> None:
        """Lists with a mistake are refused; those compiled before then serve on."""
        progress.step("set-up, word lists", "compiling")
        try:
            self._run([str(self.python), "-m", "scripts.words", "compile"], progress, lambda line: None, first_line)
        except SetupFailed as failed:
            if not self.compiled_words.exists():
                raise
            progress.say(f"warning: {failed}; the previously compiled lists stay in use")
        else:
            progress.done()

    def _run(
        self,
        command: list[str],
        progress: Progress,
        status: Callable[[str], str | None],
        reason: Callable[[list[str]], str] = last_line,
        env: dict[str, str] | None = None,
    ) -> None:
        try:
            run_step(command, env or self.variables(), self.root, self.log, progress, status)
        except StepFailed as failed:
            raise SetupFailed(f"{reason(failed.lines)} (the full output is in {os.path.relpath(self.log)})") from None


def _engine_step(environment: Environment, tier: str) -> Callable[[Progress], None]:
    return lambda progress: environment.build_engine(tier, progress)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def explain(reason: Refused | SetupFailed | Interrupted, progress: Progress) -> int:
    """Says in one line why nothing was started; returns the exit status."""
    if isinstance(reason, Interrupted):
        progress.say("interrupted; the next start continues the set-up")
        return reason.exit_code
    progress.say(f"error: {reason}")
    return REFUSED if isinstance(reason, Refused) else SETUP_FAILED


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/install", description="Installs everything, but starts nothing.")
    parser.add_argument("--dev", action="store_true", help="also install what the checks and tests need")
    options = parser.parse_args()
    interruptible()
    progress = Progress()
    try:
        with Environment().ensured(progress, options.dev):
            return 0
    except (Refused, SetupFailed, Interrupted) as reason:
        return explain(reason, progress)


if __name__ == "__main__":
    sys.exit(main())
