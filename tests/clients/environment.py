"""Where the clients' packages lie: virtual environments of their own, each made once, and npm packages.

    python -m tests.clients.environment        makes the one of the clients that CI runs

Those of SLOW have one each: their packages don't agree with the others'.
"""

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
NPM_PACKAGE = "openai@7.59.0"
PYTHON_CLIENTS = ("openai_python", "openai_responses", "anthropic_python", "langchain_client", "litellm_client")
SLOW = {"llama_index_client": "llama-index", "openai_agents_client": "openai-agents", "aiperf_client": "aiperf"}
# Clients look for nothing outside this machine.
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def failures_of(client: str, *arguments: str) -> dict[str, str]:
    """What a Python client's checks say of each that isn't well; `arguments` begin with the server's address."""
    return _failures([str(python(SLOW.get(client, ""))), str(FOLDER / f"{client}.py"), *arguments])


def failures_of_node(url: str) -> dict[str, str]:
    """The same of the npm package."""
    python()
    return _failures([*node_script(), url])


def _failures(command: list[str]) -> dict[str, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env={**os.environ, **QUIET})
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert found
    return {name: outcome for name, outcome in found.items() if outcome != "ok"}


def python(name: str = "") -> Path:
    """The Python that has the clients. Skips the test where they can't be had, but not in CI."""
    try:
        return made(name)
    except (OSError, subprocess.SubprocessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the clients can't be installed: {error}")


def made(name: str = "") -> Path:
    """The same; makes the environment where it is not there, or one of other packages. Waits where another does."""
    folder = MADE.with_name(f"{MADE.name}-{name}") if name else MADE
    requirements = FOLDER / (f"requirements-{name}.txt" if name else "requirements.txt")
    wanted = hashlib.sha256(requirements.read_bytes() + NPM_PACKAGE.encode()).hexdigest()
    stamp = folder / "complete"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:  # not in the folder, which is cleared
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _make(folder, requirements)
            stamp.write_text(wanted)
    return folder / "bin" / "python"


def node_script() -> list[str]:
    """The command that runs the checks of the npm package."""
    script = MADE / "openai_node.mjs"
    shutil.copy(FOLDER / script.name, script)
    return [shutil.which("node") or "node", str(script)]


def _make(folder: Path, requirements: Path) -> None:
    install = ("--quiet", "--no-deps", "--no-compile", "-r", str(requirements))
    commands = [
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", *install],
    ]
    if folder == MADE:
        commands.append(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(MADE), NPM_PACKAGE])
    for command in commands:
        subprocess.run(command, check=True, timeout=600)


if __name__ == "__main__":
    made()
