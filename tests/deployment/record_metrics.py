"""Records how a server's metrics rise as it is saturated, for the tests of the scaling rules.

    python -m tests.deployment.record_metrics tests/data/saturated_router.json.gz
    python -m tests.deployment.record_metrics tests/data/saturated_engine.json.gz --engine tensorrt_llm_small

Scrapes the server on this machine (scripts/serve cpu --ready-port 8003) every few seconds: first calm, with one
request at a time, then with many streams, each of which asks again as soon as it is answered or turned away. Only what
the rules read is kept. --engine sends token ids past the router, as the routers of other pods do.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

KEPT = re.compile(
    r"^(nv_trt_llm_request_metrics|nv_inference_pending_request_count|nv_inference_(?:queue|compute_infer)_duration_us"
    r"|nv_inference_request_success|llm_router_requests_in_flight|llm_router_model_processes|llm_router_finishes_total)"
    r"(\{[^}]*\})? (\S+)$",
    re.MULTILINE,
)
IDS = list(range(100, 132))
PROMPT = "Write a long story about a lighthouse keeper, part {}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--pages", nargs="+", type=int, default=[8002, 8003], metavar="PORT", help="metrics pages")
    parser.add_argument("--interval", type=float, default=5.0, metavar="S")
    parser.add_argument("--calm", type=int, default=60, metavar="S")
    parser.add_argument("--load", type=int, default=90, metavar="S")
    parser.add_argument("--streams", type=int, default=96)
    parser.add_argument("--engine", metavar="MODEL", help="(llm_router)")
    parser.add_argument("--max-tokens", type=int, default=256)
    options = parser.parse_args()
    recorded = record(options)
    with gzip.GzipFile(options.output, "wb", mtime=0) as file:
        file.write(json.dumps(recorded, separators=(",", ":"), sort_keys=True).encode())
    print(f"{len(recorded['series'])} series, {options.output.stat().st_size} bytes")
    return 0


def record(options: argparse.Namespace) -> dict[str, Any]:
    """`series`: by name and labels, a value for each scrape, None where there was none."""
    series: dict[str, list[float | None]] = {}
    over, loaded = threading.Event(), int(options.calm / options.interval)
    scrapes = loaded + int(options.load / options.interval)
    load = [_Client(options, number, over) for number in range(options.streams)]
    load[0].start()
    begin = time.monotonic()
    for number in range(scrapes):
        if number == loaded:
            for client in load[1:]:
                client.start()
        time.sleep(max(0.0, begin + number * options.interval - time.monotonic()))
        for name, value in _scrape(options).items():
            series.setdefault(name, [None] * number).append(value)
        for values in series.values():
            values += [None] * (number + 1 - len(values))
    over.set()
    return {
        "interval_s": options.interval,
        "loaded_from": loaded,
        "streams": options.streams,
        "max_tokens": options.max_tokens,
        "load_average": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "series": series,
    }


def _scrape(options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    for port in options.pages:
        with urllib.request.urlopen(f"http://{options.host}:{port}/metrics", timeout=options.interval) as page:
            text = page.read().decode()
        found |= {f"{name}{labels or ''}": float(value) for name, labels, value in KEPT.findall(text)}
    return found


class _Client(threading.Thread):
    """Asks again and again, with a pause where it is turned away."""

    def __init__(self, options: argparse.Namespace, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        model = options.engine or "llm_router"
        self._url = f"http://{options.host}:{options.http_port}/v2/models/{model}/generate_stream"
        body: dict[str, object] = {"text_input": PROMPT.format(number), "max_tokens": options.max_tokens}
        if options.engine:
            body = {"input_ids": IDS, "input_lengths": len(IDS), "request_output_len": options.max_tokens}
        stream = "streaming" if options.engine else "stream"
        self._data = json.dumps({**body, stream: True}).encode()
        self._number, self._over = number, over

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with urllib.request.urlopen(urllib.request.Request(self._url, self._data)) as answer:
                    turned_away = b'"error"' in answer.read()
            except (OSError, urllib.error.URLError):
                turned_away = True
            if turned_away or self._number == 0:
                self._over.wait(1.0)


if __name__ == "__main__":
    raise SystemExit(main())
