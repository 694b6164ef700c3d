"""The router against the bare engine and against the engine's library, in alternating rounds on one server.

    python -m scripts.bench router [--rounds 5] [--streams 1,8,32] [--tokens 100] [--json FILE]
    python -m scripts.bench router --words 10000    with so many sensitive words, against the filter switched off
    python -m scripts.bench router --processes 32,128 [--streams 32,128]   with so many, beside each other
    python -m scripts.bench router --cold           also with a process that empties the caches beside both
    python -m scripts.bench router --profile        also the libraries in which the router's processes spend their time

(a) tensorrt_llm_small, driven with token ids; (b) llm_router, driven with the text of the same ids; (c) OpenVINO GenAI
alone in a process of its own, no Triton. All greedy, the same prompts, each stream exactly --tokens long. Then (a) and
(b) again with stream_interval=1: a response for every token. Each comparison ends with what a response costs the
processes on its way. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bls import manifest
from bls.arrays import boolean, int32
from bls.contract import LARGE, ROUTER, SMALL
from bls.paths import ROOT
from scripts.bench import response_cost, router_processes, router_words
from scripts.bench.instances import numbers
from scripts.bench.local_server import Server, running_server
from scripts.bench.rounds import Round, alternate, encode, prompts, ratios, router_request, served, summary, table
from scripts.bench.stream_load import Stream, StreamRequest, output, tensor
from scripts.bench.sweeper import sweeping
from scripts.host import processes
from scripts.host.progress import Progress


def engine_request(ids: np.ndarray[Any, Any], tokens: int) -> StreamRequest:
    inputs = [
        tensor("input_ids", ids),
        tensor("input_lengths", int32(ids.shape[1])),
        tensor("request_output_len", int32(tokens)),
        tensor("min_tokens", int32(tokens)),
        tensor("streaming", boolean(True)),
    ]
    outputs = [output("output_ids"), output("sequence_length")]
    return StreamRequest(SMALL, inputs, outputs, lambda result: int(result.as_numpy("sequence_length").flat[0]))


class Library:
    """OpenVINO GenAI in a process of its own (scripts/bench/library.py): one line in, one line out, for each round."""

    def __init__(self) -> None:
        folder = manifest.built_folder(ROOT / "model_repository", "small")
        command = [sys.executable, "-m", "scripts.bench.library", str(folder)]
        self._process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, prompt_ids: Sequence[np.ndarray[Any, Any]], tokens: int) -> Round:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({"prompts": [ids[0].tolist() for ids in prompt_ids], "tokens": tokens}) + "\n"
        )
        self._process.stdin.flush()
        return Round([Stream(**fields) for fields in json.loads(self._process.stdout.readline())])

    def close(self) -> None:
        self._process.communicate()


def set_stream_interval(server: Server, interval: int | None) -> None:
    """Loads both engines again with one response per `interval` tokens; None for what their configuration says."""
    for model in (SMALL, LARGE):
        config = None
        if interval is not None:
            config = server.control.config(model)
            config["parameters"].pop("stream_min_interval_ms", None)
            config["parameters"]["stream_interval"] = {"string_value": str(interval)}
        server.control.load(model, config=config)


def beside_sweeper(run: Callable[[], Round]) -> Round:
    with sweeping():
        return run()


def compare(
    server: Server, library: Library | None, streams: int, options: argparse.Namespace, label: str
) -> dict[str, Any]:
    texts = prompts(streams)
    ids = [encode(server.grpc_url, text) for text in texts]
    kinds: dict[str, Callable[[], Round]] = {
        "engine": lambda: served(server, [engine_request(each, options.tokens) for each in ids]),
        "router": lambda: served(server, [router_request(each, options.tokens) for each in texts]),
    }
    of_server = list(kinds)
    if options.cold:
        kinds |= {f"{kind}_cold": partial(beside_sweeper, kinds[kind]) for kind in of_server}
        of_server = list(kinds)
    if library is not None:
        kinds["library"] = lambda: library.run(ids, options.tokens)
    results = alternate(kinds, options.rounds, Progress(), label)
    found: dict[str, Any] = {kind: summary(rounds) for kind, rounds in results.items()}
    found["router_over_engine"] = ratios(results["router"], results["engine"])
    if options.cold:
        found["router_cold_over_engine_cold"] = ratios(results["router_cold"], results["engine_cold"])
    if library is not None:
        found["router_over_library"] = ratios(results["router"], results["library"])
    found["cpu_us_per_token_by_process"] = {
        kind: {
            name: statistics.median(each.cpu_us.get(name, 0.0) / each.tokens for each in results[kind])
            for name in results[kind][0].cpu_us
        }
        for kind in of_server
    }
    print(table(label, found), flush=True)
    found["response_cost"] = {}
    for kind in of_server:
        costs = response_cost.medians(
            [{name: cost.shared_by(each.responses) for name, cost in each.costs.items()} for each in results[kind]]
        )
        found["response_cost"][kind] = {name: cost._asdict() for name, cost in costs.items()}
        print(response_cost.table(f"{label}, {kind}", costs), flush=True)
    if options.profile:
        routers = [pid for pid in processes.tree(server.server_pid) if processes.role(pid) == ROUTER]
        found["router_by_library"] = response_cost.by_library(routers, kinds["router"])
        print(response_cost.library_table(found["router_by_library"]), flush=True)
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench router", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--streams", type=numbers, default=[1, 8, 32], help="how many streams at once, separated by commas"
    )
    parser.add_argument("--tokens", type=int, default=100, help="length of each stream, in tokens")
    parser.add_argument("--words", type=int, help="compare with and without a filter of this many words")
    parser.add_argument("--processes", type=numbers, help="compare routers with so many processes")
    parser.add_argument("--idle-seconds", type=float, default=30, help="how long those are watched doing nothing")
    parser.add_argument("--cold", action="store_true", help="also with a process that empties the caches")
    parser.add_argument("--profile", action="store_true", help="one more round under perf")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    counts: list[int] = options.streams
    if options.words:
        result = router_words.measured(options, counts)
    elif options.processes:
        result = router_processes.measured(options, counts)
    else:
        result = measured(options, counts)
    text = json.dumps(result)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0


def measured(options: argparse.Namespace, counts: Sequence[int]) -> dict[str, Any]:
    result: dict[str, Any] = {"rounds": options.rounds, "tokens": options.tokens}
    library = Library()
    try:
        with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
            for streams in counts:
                result[f"streams_{streams}"] = compare(server, library, streams, options, f"{streams} streams")
            sizes = processes.memory_bytes(server.server_pid)
            result["pss_mb_by_process"] = {
                name: [round(size / 1e6, 1) for size in each] for name, each in sizes.items()
            }
            print("\nmemory (PSS)")
            for name, each in sorted(sizes.items()):
                middle, largest = statistics.median(each) / 1e6, max(each) / 1e6
                print(f"  {name:<20} {len(each):3d} x {middle:7.1f} MB, largest {largest:.1f}")
            set_stream_interval(server, 1)
            label = f"{max(counts)} streams, a response for every token (stream_interval=1)"
            result[f"streams_{max(counts)}_interval_1"] = compare(server, None, max(counts), options, label)
    finally:
        library.close()
    return result
