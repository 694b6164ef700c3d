"""Where the clients' packages lie: a virtual environment and npm packages of their own, made once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
MADE = ROOT / ".venv-clients"
LOCK = ROOT / ".venv-clients.lock"  # not in the folder, which is cleared while it is made
REQUIREMENTS = FOLDER / "requirements.txt"
NPM_PACKAGE = "openai@7.59.0"
PYTHON_CLIENTS = ("openai_python", "openai_responses", "anthropic_python", "langchain_client", "litellm_client")


def failures_of(client: str, url: str) -> dict[str, str]:
    """What a Python client's checks say of each that isn't well."""
    return _failures([str(python()), str(FOLDER / f"{client}.py"), url])


def failures_of_node(url: str) -> dict[str, str]:
    """The same of the npm package."""
    python()
    return _failures([*node_script(), url])


def _failures(command: list[str]) -> dict[str, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert found
    return {name: outcome for name, outcome in found.items() if outcome != "ok"}


def python() -> Path:
    """The Python that has the clients. Skips the test where they can't be had, but not in CI."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + NPM_PACKAGE.encode()).hexdigest()
    stamp = MADE / "complete"
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _make()
            stamp.write_text(wanted)
    return MADE / "bin" / "python"


def node_script() -> list[str]:
    """The command that runs the checks of the npm package."""
    script = MADE / "openai_node.mjs"
    shutil.copy(FOLDER / script.name, script)
    return [shutil.which("node") or "node", str(script)]


def _make() -> None:
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(MADE)],
        [str(MADE / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(REQUIREMENTS)],
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(MADE), NPM_PACKAGE],
    ]
    for command in commands:
        try:
            subprocess.run(command, check=True, timeout=600)
        except (OSError, subprocess.SubprocessError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"the clients can't be installed: {error}")
