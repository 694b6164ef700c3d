"""Simulates many engine pods: which choice of a pod and which signal of autoscaling suits which arrivals.

    python -m scripts.simulate routing --pods 8 --rate 20 --arrivals bursty
    python -m scripts.simulate routing --pods 1000 --rate 2000 --seconds 60 --routers 20
    python -m scripts.simulate scaling --rate 20 --arrivals daily --seconds 7200
    python -m scripts.simulate routing --arrivals logs/decisions.jsonl --model tensorrt_llm_small --pods 2

One line for each choice or signal; the last line is all of it as JSON. Times are in seconds from a request's arrival.
docs/scale-out.md says what is simulated and what isn't.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bls.contract import SMALL
from scripts.simulate import report
from scripts.simulate.arrivals import KINDS, Arrival, BadArrivals, Load, generate, recorded
from scripts.simulate.choices import CHOICES
from scripts.simulate.pod import Engine
from scripts.simulate.run import MAX_PODS, Simulation, Site
from scripts.simulate.scaling import SIGNALS, Limits


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m scripts.simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("what", choices=("routing", "scaling"))
    load, engine = Load(), Engine()
    add = found.add_argument
    add("--arrivals", default=load.kind, metavar="KIND|FILE", help=f"{', '.join(KINDS)}, or a decision log (poisson)")
    add("--model", default=SMALL, help="whose requests of the decision log (tensorrt_llm_small)")
    add("--rate", type=float, default=load.rate, metavar="N", help="requests a second, the mean (10)")
    add("--seconds", type=float, default=load.seconds, metavar="S", help="for so long (600)")
    add("--prompt-tokens", type=float, default=load.prompt_tokens, metavar="N", help="of a prompt, the mean (400)")
    add("--tokens", type=float, default=load.tokens, metavar="N", help="of an answer, the mean (120)")
    add("--prefixes", type=int, default=load.prefixes, metavar="N", help="different beginnings of prompts (200)")
    add("--pods", type=int, default=4, metavar="N", help="engine pods, for scaling at the beginning (4)")
    add("--routers", type=int, default=1, metavar="N", help="router pods, which don't know of one another's (1)")
    add("--places", type=int, default=engine.places, metavar="N", help="in a pod's batch (32)")
    add(
        "--most-waiting",
        type=int,
        default=engine.most_waiting,
        metavar="N",
        help="at a pod; others are turned away (64)",
    )
    add("--step-ms", type=float, default=engine.base_s * 1000, metavar="MS", help="of a batch of none (7)")
    add("--stream-ms", type=float, default=engine.stream_s * 1000, metavar="MS", help="more for each stream (0.51)")
    add("--start-seconds", type=float, default=Limits().start_s, metavar="S", help="until a new pod is ready (90)")
    add("--max-pods", type=int, default=Limits().most, metavar="N", help="for scaling (100)")
    add("--only", action="append", metavar="NAME", help="of the choices or signals, repeatable (all)")
    add("--choice", choices=CHOICES, default="least_outstanding", help="of a pod, for scaling (least_outstanding)")
    add("--warm-up", type=float, default=0.0, metavar="S", help="whose requests don't count (0)")
    add("--seed", type=int, default=1)
    return found


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        _check(options)
        arrivals = _arrivals(options)
    except BadArrivals as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    limits = Limits(most=options.max_pods, start_s=options.start_seconds)
    engine = Engine(options.places, options.step_ms / 1000, options.stream_ms / 1000, most_waiting=options.most_waiting)
    rows = []
    for name in options.only or (CHOICES if options.what == "routing" else SIGNALS):
        choice, signal = (name, "") if options.what == "routing" else (options.choice, name)
        site = Site(options.pods, options.routers, choice, signal, engine, limits)
        rows.append(report.row(name, Simulation(site, arrivals, options.seed).run(), options.warm_up))
    print(report.table(rows))
    capacity = options.pods * engine.tokens_per_second
    asked = sum(each.tokens for each in arrivals) / max(arrivals[-1].at_s, 1.0)
    print(f"{asked:.0f} tokens a second are asked for, {capacity:.0f} are what {options.pods} pods can give")
    print(json.dumps({"options": vars(options), "rows": rows}))
    return 0


def _check(options: argparse.Namespace) -> None:
    limits = {"pods": MAX_PODS, "max_pods": MAX_PODS, "routers": 1000, "places": 100_000}
    for name, most in limits.items():
        if not 1 <= getattr(options, name) <= most:
            raise BadArrivals(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be 1 to {most}")
    for name in ("step_ms", "stream_ms", "start_seconds", "warm_up", "most_waiting"):
        if getattr(options, name) < 0 or options.step_ms + options.stream_ms == 0:
            raise BadArrivals(f"--{name.replace('_', '-')} must be 0 or more, and a step must take some time")
    known = CHOICES if options.what == "routing" else SIGNALS
    for name in options.only or ():
        if name not in known:
            raise BadArrivals(f"--only is {name!r}; it must be {', '.join(known)}")


def _arrivals(options: argparse.Namespace) -> list[Arrival]:
    """Raises BadArrivals."""
    if options.arrivals not in KINDS and Path(options.arrivals).exists():
        return recorded(Path(options.arrivals), options.model, options.seed)
    load = Load(
        options.arrivals, options.rate, options.seconds, options.prompt_tokens, options.tokens, options.prefixes
    )
    found = generate(load, options.seed)
    if not found:
        raise BadArrivals(f"--rate {options.rate} for --seconds {options.seconds} makes no request")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
