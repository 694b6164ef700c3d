"""Measures what this repository is for, as ratios within one run.

python -m scripts.bench router      the router against the bare engine and the engine's library
python -m scripts.bench batching    the large engine without batching, in static and dynamic batches, in flight
python -m scripts.bench classifier  the text classifier without and with dynamic batching, and in int8
python -m scripts.bench filter      the word filter against ahocorasick_rs and the loop that looks for each word
python -m scripts.bench gateway     the gateway against gRPC on the same server: latency, events a core, memory
python -m scripts.bench goodput     the router at up to five times its capacity
python -m scripts.bench hops        what a step of an ensemble costs, by the size of what it hands on
python -m scripts.bench instances   tokenizer and detokenizer over instances and queue delays
python -m scripts.bench peer        the router against a copy of NVIDIA's tensorrt_llm_bls, before one engine
python -m scripts.bench policy      a decision with everything on, and how soon an edited policy is in force
python -m scripts.bench remote      a router before an engine server against all on one: latency, CPU, tokens/s
python -m scripts.bench request     the router's own Python before the first token and after the last, warm and cold
python -m scripts.bench response    the router's own Python between two responses, with warm and with cold caches
python -m scripts.bench routing     a mixed trace routed, all to the large engine, all to the small one
python -m scripts.bench safety      the prompt's checks, by length and one by one
python -m scripts.bench simulation  the simulation of pods against one, two and three real servers
python -m scripts.bench router --help
"""

from __future__ import annotations

import importlib
import sys

BENCHES = {
    "batching": "scripts.bench.batching",
    "classifier": "scripts.bench.classifier",
    "filter": "scripts.bench.filter",
    "gateway": "scripts.bench.gateway",
    "goodput": "scripts.bench.goodput",
    "hops": "scripts.bench.hops",
    "instances": "scripts.bench.instances",
    "peer": "scripts.bench.peer",
    "policy": "scripts.bench.policy",
    "remote": "scripts.bench.remote",
    "request": "scripts.bench.request",
    "response": "scripts.bench.response",
    "router": "scripts.bench.router",
    "routing": "scripts.bench.routing",
    "safety": "scripts.bench.safety",
    "simulation": "scripts.bench.simulation",
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in BENCHES:
        print(__doc__, file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    status: int = importlib.import_module(BENCHES[arguments[0]]).main(arguments[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
