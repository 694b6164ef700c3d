"""What the gateway adds to gRPC: in alternating rounds, in front of a stand-in for the router that answers at once.

python -m scripts.bench gateway
python -m scripts.bench gateway --rounds 5
python -m scripts.bench gateway --engine              the tokens/s at 32 streams too, on the real server and engine
python -m scripts.bench gateway --litellm FILE        LiteLLM's proxy before the gateway, too; FILE is its program, from
                                                      pip install 'litellm[proxy]' in an environment of its own

Where one request is asked at a time, each goes every way in turn. A core's worth is counted in the process's own CPU
time, so that what else the machine does changes little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bls.paths import ROOT
from bls.routing.policy_file import SHIPPED
from bls.routing.policy_file import VARIABLE as POLICY_VARIABLE
from scripts.bench.gateway_rounds import Hop, engine_rounds, stand_in_rounds
from scripts.bench.local_server import free_ports, running_server
from scripts.host import processes

# The end of a policy that turns nobody away, however busy the machine is.
UNLIMITED = "\nMAX_WAIT_SECONDS = 86400.0\nMAX_IN_FLIGHT = dict.fromkeys((tier.model for tier in TIERS), 1000)\n"
LITELLM = """model_list:
  - model_name: auto
    litellm_params: {model: "%s", api_base: "http://127.0.0.1:%d/v1", api_key: none}
"""
# It asks for a list of prices elsewhere when it starts, and warns of each model that is not on it.
LITELLM_VARIABLES = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}


@contextmanager
def started(command: Sequence[str], pattern: str, variables: Mapping[str, str] | None = None) -> Iterator[Hop]:
    """The command's process, and the port that it says it listens on."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.decode(errors="replace"))
            if found := re.search(pattern, said[-1]):
                break
        else:
            raise RuntimeError(f"{command[0]} did not start: {''.join(said[-5:])}")
        with open(os.devnull, "wb") as nowhere:
            drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=nowhere)
        yield Hop(process.pid, int(found[1]))
    finally:
        process.terminate()
        process.wait(60)
        drain.wait(60)


def stand_in() -> Any:
    return started([sys.executable, "-m", "scripts.bench.gateway_stand_in"], r"^(\d+)$")


def gateway_beside(target: str) -> Any:
    flags = (f"--triton={target}", "--triton-metrics=none", "--port=0")
    command = [sys.executable, "-m", "scripts.gateway", *flags]
    return started(command, r"listening on http://\S+:(\d+)")


@contextmanager
def litellm_before(gateway: Hop, program: Path, folder: Path) -> Iterator[Hop]:
    """LiteLLM's proxy with one worker, whose provider is the gateway."""
    (port,) = free_ports(1)
    config = folder / "litellm.yaml"
    # Not `openai/`, which answers /v1/completions by another way than its plain one.
    config.write_text(LITELLM % ("text-completion-openai/auto", gateway.port))
    command = [str(program), f"--config={config}", "--host=127.0.0.1", f"--port={port}", "--num_workers=1"]
    with started(command, rf"running on http://\S+:({port})", LITELLM_VARIABLES) as hop:
        yield hop


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench gateway",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", action="store_true", help="on the real engine too")
    parser.add_argument("--engine-only", action="store_true", help="on the real engine alone")
    parser.add_argument("--litellm", type=Path, metavar="FILE", help="LiteLLM's program, to be measured beside")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    if not options.engine_only:
        found |= _on_the_stand_in(options.rounds, options.litellm)
    if options.engine or options.engine_only:
        found |= _on_the_engine(options.rounds)
    for name, value in found.items():
        print(f"{name:32} {value}")
    print(json.dumps(found))
    return 0


def _on_the_stand_in(rounds: int, litellm: Path | None) -> dict[str, Any]:
    with ExitStack() as stack:
        router = stack.enter_context(stand_in())
        target = f"127.0.0.1:{router.port}"
        hops = {"gateway": stack.enter_context(gateway_beside(target))}
        if litellm:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            hops["litellm"] = stack.enter_context(litellm_before(hops["gateway"], litellm, folder))
        found: dict[str, Any] = uvloop.run(stand_in_rounds(target, hops, rounds))
        for name, hop in hops.items():
            sizes = processes.memory_bytes(hop.pid).values()
            found[f"{name}_pss_mb"] = round(sum(map(sum, sizes)) / 2**20, 1)
        return found


def _on_the_engine(rounds: int) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "policy.py").write_text(SHIPPED.read_text() + UNLIMITED)
        variables = {**os.environ, POLICY_VARIABLE: str(folder / "policy.py")}
        server = stack.enter_context(running_server(folder, env=variables))
        gateway = stack.enter_context(gateway_beside(server.grpc_url))
        found: dict[str, Any] = asyncio.run(engine_rounds(gateway.port, server.grpc_url, rounds))
        return found
