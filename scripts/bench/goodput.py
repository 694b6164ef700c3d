"""Goodput of an overloaded router: answers a second whose first token came in time, by the rate of requests.

    python -m scripts.bench goodput [--times 0.5,1,2,5] [--seconds 15] [--tokens 16] [--in-time-ms 2000]

First the capacity: answers a second to 12 clients that each ask again when answered. Then open loops at multiples of
it, and 4 requests a second at once after the worst. Goal: beyond the capacity no rate has less than 0.9 of the best
goodput, and who is turned away hears it within 5 ms. Without --url on a server of its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench import open_loop
from scripts.bench.local_server import running_server
from scripts.bench.open_loop import Sample, request_bytes
from scripts.host.progress import Progress

CLIENTS = 12
AFTER_RATE = 4.0


def body(host: str, number: int, tokens: int) -> bytes:
    """Each differs, so that no cache answers for the engine."""
    text = f"Tell a story of a fox that met {number} hares."
    return request_bytes(host, {"text_input": text, "max_tokens": tokens, "min_tokens": tokens})


def bodies(host: str, count: int, tokens: int) -> list[bytes]:
    return [body(host, number, tokens) for number in range(count)]


def capacity(host: str, tokens: int, seconds: float) -> float:
    """Answers a second to CLIENTS that each send their next when answered."""
    begin = time.perf_counter()
    ended: list[float] = []
    numbers = itertools.count(1_000_000)

    def client() -> None:
        while time.perf_counter() < begin + seconds:
            (sample,) = open_loop.run(host, [body(host, next(numbers), tokens)], 1.0)
            if sample.is_answered:
                ended.append(time.perf_counter())
            else:
                time.sleep(1.0)  # as it is told

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(begin + seconds / 4 <= each <= begin + seconds for each in ended) / (seconds * 3 / 4)


def figures(samples: Sequence[Sample], rate: float, in_time_s: float) -> dict[str, Any]:
    """Rates are over the time from the first to the last request that was due."""
    seconds = len(samples) / rate
    answered = [sample for sample in samples if sample.is_answered]
    good = [sample for sample in answered if sample.first_s is not None and sample.first_s <= in_time_s]
    busy = [sample.ended_s or 0.0 for sample in samples if "[BUSY]" in sample.error]
    errors = Counter(sample.error[:80] for sample in samples if sample.error)
    return {
        "rate": round(rate, 2),
        "requests": len(samples),
        "goodput": round(len(good) / seconds, 2),
        "answered": round(len(answered) / seconds, 2),
        "first_token_ms": _marks([sample.first_s or 0.0 for sample in answered]),
        "turned_away": len(busy),
        "turned_away_ms": _marks(busy),
        "errors": dict(errors.most_common(5)),
    }


def _marks(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{mark}": round(float(np.percentile(seconds, mark)) * 1000, 1) for mark in (50, 99)} if seconds else {}


def measure(host: str, options: argparse.Namespace) -> dict[str, Any]:
    progress = Progress()
    progress.step("goodput", "capacity")
    of_all = options.capacity or capacity(host, options.tokens, options.seconds)
    progress.done(f"{of_all:.2f} answers a second")
    rows = []
    for times in options.times:
        progress.step("goodput", f"{times:g} x the capacity")
        rate = times * of_all
        samples = open_loop.run(host, bodies(host, max(1, round(rate * options.seconds)), options.tokens), rate)
        rows.append({"times": times, **figures(samples, rate, options.in_time_ms / 1000)})
        progress.done()
    samples = open_loop.run(host, bodies(host, round(AFTER_RATE * 5), options.tokens), AFTER_RATE)
    best = max(row["goodput"] for row in rows)
    for row in rows:
        row["of_best"] = round(row["goodput"] / min(best, row["rate"]), 2) if best else 0.0
    return {
        "capacity": round(of_all, 2),
        "rows": rows,
        "after": figures(samples, AFTER_RATE, options.in_time_ms / 1000),
    }


def table(found: dict[str, Any]) -> str:
    head = ("times", "rate", "good/s", "answered/s", "first token p50, p99 ms", "turned away", "p50, p99 ms")
    lines = [_row(head)]
    for row in [*found["rows"], {"times": "after", **found["after"]}]:
        first, away = (
            ", ".join(f"{value:.0f}" for value in row[name].values()) for name in ("first_token_ms", "turned_away_ms")
        )
        lines.append(
            _row([row["times"], row["rate"], row["goodput"], row["answered"], first, row["turned_away"], away])
        )
        lines += [f"        {count} x {error}" for error, count in row["errors"].items()]
    return "\n".join(lines)


def _row(cells: Sequence[Any]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, (6, 8, 8, 12, 26, 13, 16), strict=True))


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench goodput", description=__doc__)
    parser.add_argument("--times", type=numbers, default=[0.5, 1.0, 2.0, 5.0], help="of the capacity, comma between")
    parser.add_argument("--seconds", type=float, default=15, help="of each rate")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--in-time-ms", type=float, default=2000, help="for the first token of a good answer")
    parser.add_argument("--capacity", type=float, help="answers a second; without it, it is measured")
    parser.add_argument("--url", metavar="HOST:PORT", help="the HTTP port of a running server")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        host = options.url
        if not host:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            host = stack.enter_context(running_server(folder)).http_url.removeprefix("http://")
        found = measure(host, options)
    print(table(found))
    text = json.dumps(found)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0
