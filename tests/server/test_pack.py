"""scripts/pack: its folder in a plain tritonserver, started by hand, which can only read it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bls.paths import PACKED, ROOT
from scripts.environment import Environment
from scripts.host import processes, shared_memory
from tests.server.serving import free_ports
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]

ASKED: dict[str, Any] = {"text_input": "What is the capital of France?", "apply_chat_template": True, "max_tokens": 24}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack") / "models"
    command = [ROOT / "scripts" / "pack", folder, "--skip-model=llama_7b_tensorrt_llm"]
    subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)
    config = folder / "llm_router" / "config.pbtxt"  # Few processes, which start and end sooner.
    config.write_text(config.read_text().replace("count: 40", "count: 3"))
    return folder


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """For a server that `plain_server` starts."""
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(modes[path] & ~0o222)
    yield
    for path in paths:
        path.chmod(modes[path])


@contextmanager
def plain_server(folder: Path, log: Path) -> Iterator[str]:
    """tritonserver's own binary, with nothing of ours around it. Yields its HTTP address."""
    found, http, grpc, metrics = Environment(), *free_ports(3)
    as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [
        *as_anybody,
        found.tritonserver,
        f"--model-repository={folder}",
        f"--backend-directory={found.backends}",
        *(f"--{name}-port={port}" for name, port in (("http", http), ("grpc", grpc), ("metrics", metrics))),
        "--exit-timeout-secs=60",
    ]
    libraries = os.pathsep.join(map(str, found.libraries))
    variables = {"PATH": f"{found.python.parent}:{os.environ['PATH']}", "LD_LIBRARY_PATH": libraries}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=variables, cwd="/", stdout=output, stderr=subprocess.STDOUT)
    try:
        ready = f"http://127.0.0.1:{http}/v2/health/ready"
        assert eventually(lambda: process.poll() is not None or is_ok(ready), 170), log.read_text()[-3000:]
        assert process.poll() is None, log.read_text()[-3000:]
        yield f"http://127.0.0.1:{http}"
    finally:
        tree = processes.tree(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(90)
        shared_memory.remove_stale()
        assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in tree))


def is_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(url: str, **changes: object) -> dict[str, object]:
    body = json.dumps({**ASKED, **changes}).encode()
    with urllib.request.urlopen(f"{url}/v2/models/llm_router/generate", body, timeout=60) as answer:
        return dict(json.load(answer))


def reason(url: str, max_tokens: int) -> str:
    return str(ask(url, max_tokens=max_tokens, return_route_info=True)["reason"])


def test_a_plain_server_serves_a_packed_folder_that_it_may_only_read(packed: Path, tmp_path: Path) -> None:
    with read_only(packed), plain_server(packed, tmp_path / "log") as url:
        before = sorted(packed.rglob("*"))
        answer = str(ask(url)["text_output"])
        assert answer.strip()
        assert is_ok(f"{url}/v2/models/text_pipeline_ensemble/ready")
        assert sorted(packed.rglob("*")) == before


def test_policy_and_words_are_edited_in_the_packed_folder_while_it_is_served(packed: Path, tmp_path: Path) -> None:
    files = packed / PACKED
    with plain_server(packed, tmp_path / "log") as url:
        found = set(re.findall("[A-Za-z]+", str(ask(url)["text_output"])))
        word = max(found - set(ASKED["text_input"].split()), key=len)
        assert reason(url, 24) == "default"

        policy = files / "bls" / "policy.py"
        policy.write_text(re.sub(r"(?m)^(SMALL_MAX_NEW_TOKENS =) \d+", r"\1 8", policy.read_text()))
        assert eventually(lambda: reason(url, 24) == "long_answer", 60), (tmp_path / "log").read_text()[-3000:]

        (files / "words" / "deny" / "gambling.txt").write_text(f"{word}\n")
        command = [files / "scripts" / "words", "compile"]
        subprocess.run(command, check=True, env={**os.environ, "PYTHON": str(Environment().python)})
        assert eventually(lambda: "*" * len(word) in str(ask(url)["text_output"]), 30)
