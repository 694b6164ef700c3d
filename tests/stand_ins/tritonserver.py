#!/usr/bin/env python3
"""Stands in for tritonserver: takes its options and no others, writes its log's lines, answers /v2/health/ready.

What each rank does is in $STAND_IN, JSON by rank: "fails MODEL", "dies" or "leaves" (status 3 or 0, once a file may-end
is there), "drains" (for 3 s) or "ignores" (SIGTERM). As in leader mode a rank beyond the first has no port and never
becomes ready; it leaves when the first has, which a file tells. The files lie in $STAND_IN_FOLDER.
"""

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scripts.server.server_options import KNOWN

# What `tritonserver --help` of the pinned version has besides.
OTHERS = (
    *("help", "id", "log-error", "model-namespacing", "model-config-name", "disable-auto-complete-config"),
    *("allow-http", "reuse-http-port", "http-header-forward-pattern", "http-restricted-api"),
    *("reuse-grpc-port", "grpc-header-forward-pattern", "grpc-restricted-protocol"),
    *("allow-sagemaker", "sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count"),
    *("allow-vertex-ai", "vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model"),
    *("backend-directory", "repoagent-directory", "cache-directory", "cuda-virtual-address-size"),
    *("http-address", "grpc-address", "metrics-address", "log-file", "model-store"),
)
PREFIX = "python,shm-region-prefix-name="


class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *arguments):
        pass


def options():
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--disable-auto-complete-config", action="store_true")
    ours = {"http-port", "grpc-port", "metrics-port", "model-repository", "exit-timeout-secs"}
    for name in sorted({*KNOWN, *OTHERS, *ours} - {"disable-auto-complete-config"}):
        parser.add_argument(f"--{name}", action="append", default=[])
    return parser.parse_args()


def log(level, text):
    print(f'{level}1130 03:45:24.508051 {os.getpid()} model_lifecycle.cc:839] "{text}"', file=sys.stderr, flush=True)


def end_if_it_may(behaviour):
    if behaviour in ("dies", "leaves") and (Path(os.environ["STAND_IN_FOLDER"]) / "may-end").exists():
        os._exit(3 if behaviour == "dies" else 0)


def main():
    given = options()
    prefix = next(setting for setting in given.backend_config if setting.startswith(PREFIX))
    numbered = re.search(r"_[0-9a-f]{8}_(\d+)_$", prefix)
    rank = int(numbered[1]) if numbered else 0
    behaviour = json.loads(os.environ.get("STAND_IN", "{}")).get(str(rank), "")
    has_ended = Path(os.environ["STAND_IN_FOLDER"]) / "first-rank-has-ended"
    stop = threading.Event()
    if behaviour == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif not rank:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for model in given.load_model:
        if behaviour == f"fails {model}":
            log("E", f"failed to load '{model}' version 1: Internal: [TensorRT-LLM][ERROR] Assertion failed: no memory")
            print("error: creating server: Internal - failed to load all models", file=sys.stderr, flush=True)
            sys.exit(1)
        log("I", f"loading: {model}:1")
        if not rank:
            log("I", f"successfully loaded '{model}'")
    if rank:
        assert (given.allow_http, given.allow_grpc, given.allow_metrics) == (["false"],) * 3
        while not has_ended.exists():
            end_if_it_may(behaviour)
            time.sleep(0.05)
        return
    server = ThreadingHTTPServer((given.http_address[-1], int(given.http_port[-1])), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not stop.wait(0.05):
        end_if_it_may(behaviour)
    time.sleep(3 if behaviour == "drains" else 0)
    has_ended.touch()


if __name__ == "__main__":
    main()
