"""What a step of an ensemble costs, by the size of the tensor that it hands on: models that give back what they get.

    python -m scripts.bench hops [--seconds 2] [--bytes 64,1048576,16777216]

An ensemble of Python models does not pass pointers: each step's tensors are copied into shared memory for its process
and out of it again. One client, one request after the other; ensembles of 1 and 4 steps take turns, and a hop is a
third of the difference of their medians. `cpu` is the server's CPU time of it. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from scripts.bench.local_server import Server, running_server
from scripts.host import processes

STEPS = (1, 4)
ROUNDS = 4
MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(each, "IN").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in arrays]
"""
TENSORS = (
    'input [ { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] } ]\n'
    'output [ { name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]\n'
)


def repository(folder: Path) -> Path:
    """`echo`, and `chain_N` that hands a tensor through it N times."""
    (folder / "echo" / "1").mkdir(parents=True)
    (folder / "echo" / "1" / "model.py").write_text(MODEL)
    (folder / "echo" / "config.pbtxt").write_text(f'name: "echo"\nbackend: "python"\n{TENSORS}')
    for steps in STEPS:
        names = ["IN", *(f"t{number}" for number in range(1, steps)), "OUT"]
        listed = ",\n".join(
            f'{{ model_name: "echo" model_version: -1 input_map {{ key: "IN" value: "{names[at]}" }} '
            f'output_map {{ key: "OUT" value: "{names[at + 1]}" }} }}'
            for at in range(steps)
        )
        (folder / f"chain_{steps}" / "1").mkdir(parents=True)
        config = f'name: "chain_{steps}"\nplatform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {listed} ] }}\n'
        (folder / f"chain_{steps}" / "config.pbtxt").write_text(config)
    return folder


def measure(server: Server, size: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of a request to each chain, and of a hop: wall time (median) and CPU time of the server."""
    client = triton.InferenceServerClient(server.grpc_url)
    tensor = triton.InferInput("IN", [size], "UINT8")
    tensor.set_data_from_numpy(np.zeros(size, np.uint8))
    wall: dict[int, list[float]] = {steps: [] for steps in STEPS}
    cpu: dict[int, list[float]] = {steps: [] for steps in STEPS}
    for _ in range(ROUNDS):
        for steps in STEPS:
            times, spent = _asked(client, server, f"chain_{steps}", tensor, seconds / ROUNDS)
            wall[steps] += times
            cpu[steps].append(spent)
    few, many = STEPS
    hop_ms = (statistics.median(wall[many]) - statistics.median(wall[few])) / (many - few)
    hop_cpu_ms = (statistics.median(cpu[many]) - statistics.median(cpu[few])) / (many - few)
    return {
        "bytes": size,
        **{f"{steps}_steps_ms": round(statistics.median(wall[steps]), 3) for steps in STEPS},
        "hop_ms": round(hop_ms, 3),
        "hop_cpu_ms": round(hop_cpu_ms, 3),
    }


def _asked(client: Any, server: Server, model: str, tensor: Any, seconds: float) -> tuple[list[float], float]:
    client.infer(model, [tensor])
    times: list[float] = []
    before = sum(processes.cpu_seconds(server.server_pid).values())
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end or not times:
        client.infer(model, [tensor])
        times.append(1000 * (time.perf_counter() - begin))
    return times, 1000 * (sum(processes.cpu_seconds(server.server_pid).values()) - before) / len(times)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench hops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each chain and size (default: 2)")
    parser.add_argument("--bytes", default="64,1048576,16777216", metavar="N,N", help="sizes of the tensor")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        models = repository(Path(folder, "models"))
        with running_server(Path(folder), models) as server:
            found = [measure(server, int(size), options.seconds) for size in options.bytes.split(",")]
    for row in found:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(json.dumps({"hops": found}))
    return 0
