"""The large engine behind llama_7b_ensemble: without batching, in static batches, in dynamic batches, and in flight.

    python -m scripts.bench batching [--clients 16,32] [--modes none,in_flight] [--rounds 1] [--json FILE]

N clients send one request after the other: the same prompts, the same mix of output lengths in the same order. With
--json each measurement is kept in FILE as soon as it is made, and those that FILE holds already are not repeated: a
long run can be made in pieces. The last line of output is JSON.

none       one request at a time                        static    the clients send batches of 16, and wait for all of it
dynamic    Triton batches, each to its longest member   in_flight requests join and leave the running batch
burst      dynamic, but all requests are sent at once   bucketed  burst, with near lengths sent together
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_aio

from bls.contract import LLAMA_7B, LLAMA_7B_ENSEMBLE, POSTPROCESSING, PREPROCESSING, PROMPT_SAFETY, SENSITIVE_WORDS
from bls.paths import ROOT
from scripts.bench.batching_rounds import BURSTS, MODES, Answered, Kept, Round, goals_of, summary, table
from scripts.bench.length_buckets import LengthBuckets
from scripts.bench.local_server import Server, running_server
from scripts.bench.rounds import prompts
from scripts.bench.stream_load import tensor
from scripts.host.progress import Progress

MODELS = (LLAMA_7B_ENSEMBLE, LLAMA_7B, PROMPT_SAFETY, PREPROCESSING, POSTPROCESSING, SENSITIVE_WORDS)
LENGTHS = (50, 50, 50, 100, 50, 50, 200, 400)
STATIC_BATCH = 16
BUCKET_WAIT_S = 2.0
SEED = 1


def config_of(mode: str, config: dict[str, Any]) -> dict[str, Any]:
    """The batched engine's configuration for a mode; `in_flight` is the one that it is served with."""
    changed: dict[str, Any] = json.loads(json.dumps(config))
    if mode in ("none", "static"):
        changed.pop("dynamic_batching", None)
    if mode != "in_flight":
        changed["parameters"]["gpt_model_type"] = {"string_value": "V1"}
    if mode == "none":
        changed["parameters"]["max_batch_size"] = {"string_value": "1"}
    return changed


def lengths_of(requests: int, mix: Sequence[int]) -> list[int]:
    """As many output lengths, each of the mix as often as the others, in an order that is the same in each run."""
    lengths = list(itertools.islice(itertools.cycle(mix), requests))
    random.Random(SEED).shuffle(lengths)
    return lengths


def requests_of(mode: str, clients: int, requests: int) -> int:
    """One for each client without batching: it takes longest, and is steady from its first request."""
    return clients * (1 if mode == "none" else requests)


def inputs_of(rows: Sequence[tuple[str, int]]) -> list[Any]:
    """A request of one or more prompts, each with its exact output length."""
    texts = np.array([[text.encode()] for text, _ in rows], np.object_)
    lengths = np.array([[length] for _, length in rows], np.int32)
    return [tensor("input_text", texts), tensor("max_tokens", lengths), tensor("min_tokens", lengths)]


async def run_clients(
    url: str, work: Sequence[Sequence[tuple[str, int]]], clients: int, buckets: LengthBuckets | None = None
) -> list[Answered]:
    """`clients` at once take the next piece of work, a request of one or more rows, until none is left."""
    answers: list[Answered] = []
    left: Iterator[Sequence[tuple[str, int]]] = iter(work)

    async def run_one(client: Any) -> None:
        for rows in left:
            started = time.perf_counter()
            if buckets:
                await buckets.turn(rows[0][1])
            await client.infer(LLAMA_7B_ENSEMBLE, inputs_of(rows))
            seconds = time.perf_counter() - started
            answers.extend(Answered(length, seconds) for _, length in rows)

    async with grpc_aio.InferenceServerClient(url) as client:
        await asyncio.gather(*(run_one(client) for _ in range(clients)))
    return answers


def work_of(mode: str, lengths: Sequence[int]) -> list[list[tuple[str, int]]]:
    rows = list(zip(prompts(len(lengths)), lengths, strict=True))
    size = STATIC_BATCH if mode == "static" else 1
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def measure(url: str, mode: str, clients: int, lengths: Sequence[int]) -> Round:
    load_before = os.getloadavg()[0]
    work = work_of(mode, lengths)
    at_once = len(work) if mode in BURSTS else clients // STATIC_BATCH if mode == "static" else clients
    buckets = LengthBuckets(STATIC_BATCH, BUCKET_WAIT_S) if mode == "bucketed" else None
    started = time.perf_counter()
    answers = asyncio.run(run_clients(url, work, at_once, buckets))
    return Round(answers, time.perf_counter() - started, load_before)


def set_mode(server: Server, mode: str) -> None:
    """Loads the engine again in that mode and computes a little, which is not counted."""
    # What is loaded may be the change for another mode: what its folder says comes first.
    server.control.load(LLAMA_7B)
    if mode != "in_flight":
        server.control.load(LLAMA_7B, config=config_of(mode, server.control.config(LLAMA_7B)))
    measure(server.grpc_url, mode, STATIC_BATCH, [4] * STATIC_BATCH)


def machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return f"{os.cpu_count()} x {names[0] if names else 'unknown processor'}"


def repository_in(folder: Path) -> Path:
    """A model repository of the models that are measured, and no others to share the processor with."""
    repository = folder / "model_repository"
    repository.mkdir()
    for model in MODELS:
        (repository / model).symlink_to(ROOT / "model_repository" / model)
    return repository


def run(options: argparse.Namespace, kept: Kept) -> None:
    wanted = [(mode, clients) for mode in options.modes for clients in options.clients]
    missing = [each for each in wanted if len(kept.rounds.get(f"{each[0]}_{each[1]}", [])) < options.rounds]
    if not missing:
        return
    progress = Progress()
    with tempfile.TemporaryDirectory() as folder:
        progress.step("server")
        with running_server(Path(folder), repository_in(Path(folder))) as server:
            progress.done("started")
            for mode in dict.fromkeys(mode for mode, _ in missing):
                progress.step(mode)
                progress.status("loading")
                set_mode(server, mode)
                for clients in [count for each, count in missing if each == mode]:
                    lengths = lengths_of(requests_of(mode, clients, options.requests), options.lengths)
                    while (number := len(kept.rounds.get(f"{mode}_{clients}", []))) < options.rounds:
                        progress.status(
                            f"{clients} clients, round {number + 1} of {options.rounds}: "
                            f"{len(lengths)} requests, {sum(lengths)} tokens"
                        )
                        kept.add(f"{mode}_{clients}", measure(server.grpc_url, mode, clients, lengths))
                progress.done("measured")


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench batching",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--clients", default="16,32", help="how many streams at once, separated by commas; multiples of 16"
    )
    parser.add_argument("--modes", default=",".join(MODES), help="separated by commas")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--requests", type=int, default=3, help="requests of each client in a round; 1 without batching"
    )
    parser.add_argument(
        "--lengths", default=",".join(map(str, LENGTHS)), help="output lengths in tokens, separated by commas"
    )
    parser.add_argument("--json", type=Path, help="file in which measurements are kept and looked up")
    options = parser.parse_args(arguments)
    options.clients = [int(count) for count in options.clients.split(",")]
    options.lengths = [int(length) for length in options.lengths.split(",")]
    options.modes = options.modes.split(",")
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"--modes {', '.join(sorted(unknown))}: known are {', '.join(MODES)}")
    if any(count < 1 or count % STATIC_BATCH for count in options.clients):
        parser.error(f"--clients must be multiples of {STATIC_BATCH}")
    return options


def main(arguments: Sequence[str]) -> int:
    options = options_of(arguments)
    settings = {"requests": options.requests, "lengths": options.lengths, "machine": machine()}
    kept = Kept(options.json, settings)
    run(options, kept)
    found = {key: summary(rounds) for key, rounds in kept.rounds.items()}
    counts = sorted({int(key.rpartition("_")[2]) for key in found})
    print(f"{settings['machine']}; output lengths {settings['lengths']}; {options.rounds} round(s)")
    print(table(found, counts))
    goals = {f"clients_{count}": goals_of(found, count) for count in counts}
    print(json.dumps({"settings": settings, "rounds": options.rounds, **found, "ratios": goals}))
    return 0
