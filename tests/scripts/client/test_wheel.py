"""The client as a distribution of its own: installed without this repository, it asks a server."""

import subprocess
import sys
import zipfile

import pytest

from scripts import client_wheel

ASKS = """
import asyncio, pathlib, sys
import llm_router_client
from llm_router_client import Request, TritonAsyncClient

client = TritonAsyncClient(sys.argv[1])
assert asyncio.run(client.is_ready("llm_router")) is False
assert not {"bls", "scripts"} & sys.modules.keys()
print(pathlib.Path(llm_router_client.__file__).parent.parent)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    wheel = client_wheel.write(folder / "dist")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, "--target", folder / "site", wheel], check=True, capture_output=True)
    return folder


def test_it_is_installed_by_pip_and_runs_without_this_repository(installed):
    # Of this repository's Python only what the wheel asks for is there: neither its root nor PYTHONPATH.
    ran = subprocess.run(
        [sys.executable, "-c", ASKS, "127.0.0.1:1"],
        cwd=installed,
        env={"PYTHONPATH": str(installed / "site")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str(installed / "site")


def test_its_command_is_the_clients(installed):
    command = [sys.executable, "-m", "llm_router_client", "--help"]
    ran = subprocess.run(
        command, cwd=installed, env={"PYTHONPATH": str(installed / "site")}, capture_output=True, text=True
    )
    assert ran.returncode == 0 and "--max-tokens" in ran.stdout, ran.stderr


def test_the_same_sources_give_the_same_bytes_and_no_import_leads_outside(installed, tmp_path):
    (first,) = (installed / "dist").iterdir()
    assert client_wheel.write(tmp_path).read_bytes() == first.read_bytes()
    with zipfile.ZipFile(first) as wheel:
        texts = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".py")]
    lines = [line for text in texts for line in text.split("\n")]
    assert not any(line.startswith(("from bls", "from scripts", "import bls")) for line in lines)
