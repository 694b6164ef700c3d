"""Watches a running server for some seconds, and says what is wrong with it and what to change.

    scripts/doctor                            the server of scripts/serve on this machine, 15 s
    scripts/doctor --seconds 60 --json        longer, for a program
    scripts/doctor --host gpu1 --log triton.log      another machine's: without its processes, memory and /dev/shm

It only reads: the metrics page, Triton's statistics, configs and model states, and on the server's own machine its
processes, its log and /dev/shm. It judges what it sees meanwhile, so run it under load. docs/troubleshooting.md
explains each finding.

Exit status: 0 nothing wrong was found, 1 findings, 2 the server can't be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from scripts.diagnosis.read import CannotRead, Reader
from scripts.diagnosis.report import as_json, for_people
from scripts.diagnosis.rules import judge
from scripts.diagnosis.sample import Observation, Sample
from scripts.host.progress import Progress

HEALTHY, FINDINGS, UNREADABLE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    try:
        reader = Reader(options.host, options.http_port, options.metrics_url, options.log, options.key_file)
        seen = watch(reader, options.seconds, options.every)
    except CannotRead as reason:
        print(f"error: {reason}", file=sys.stderr)
        return UNREADABLE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    findings, not_judged = judge(seen)
    report = (reader.name, seen, findings, not_judged)
    print(json.dumps(as_json(*report)) if options.json else for_people(*report))
    return FINDINGS if findings else HEALTHY


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1", help="the server's address (default: 127.0.0.1)")
    parser.add_argument(
        "--http-port", type=int, default=8000, metavar="N", help="the server's HTTP port (default: 8000)"
    )
    parser.add_argument(
        "--metrics-port", type=int, default=8002, metavar="N", help="the server's metrics port (default: 8002)"
    )
    parser.add_argument(
        "--metrics-url", metavar="URL", help="the metrics page, if it is elsewhere: http://host:port/path"
    )
    parser.add_argument("--seconds", type=float, default=15.0, metavar="S", help="how long to watch (default: 15)")
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="time between two readings (default: 1)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="the server's log, if the doctor does not find it")
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="the server's control key (default: the file beside its log)"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args(arguments)
    if not 0.1 <= options.every <= 60:
        parser.error(f"--every is {options.every:g}; it must be from 0.1 to 60")
    if not options.every <= options.seconds <= 3600:
        parser.error(f"--seconds is {options.seconds:g}; it must be from --every ({options.every:g}) to 3600")
    for flag, port in (("--http-port", options.http_port), ("--metrics-port", options.metrics_port)):
        if not 0 < port < 65536:
            parser.error(f"{flag} is {port}; it must be from 1 to 65535")
    host = f"[{options.host}]" if ":" in options.host else options.host
    options.metrics_url = options.metrics_url or f"http://{host}:{options.metrics_port}/metrics"
    if not _is_address(options.metrics_url):
        parser.error(f"--metrics-url is {options.metrics_url!r}; it must be like http://{host}:8002/metrics")
    return options


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def watch(reader: Reader, seconds: float, every: float) -> Observation:
    """Looks at the server every so often. Raises CannotRead."""
    progress = Progress()
    progress.step(f"watching {reader.name}", f"{seconds:g} s in all")
    samples: list[Sample] = [reader.sample()]
    begin = samples[0].at_s
    for look in range(1, int(seconds / every) + 1):
        progress.status()
        time.sleep(max(0.0, begin + look * every - time.monotonic()))
        samples.append(reader.sample())
    progress.done(f"{len(samples)} readings")
    return reader.observation(samples)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
