"""An OpenAI-compatible endpoint in front of a Triton that serves llm_router, here or elsewhere.

    scripts/gateway
    scripts/gateway --triton 10.0.0.5:8001 --port 9000
    scripts/gateway --host 0.0.0.0 --keys keys.txt --ledger logs/usage
    scripts/gateway drain --help        has one that runs with --admin drain, or serve again

Without --keys anyone may ask, so it listens on this machine alone. Exit status: 0 stopped on request; 2 refused; 6
stopped on request, but answers in flight were cut off. See docs/gateway.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from bls.policy import TIERS
from bls.routing.decision import Tier
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.settings import BadPolicy
from gateway import server
from gateway.accounts import MAX_WORKERS
from gateway.keys import BadKeys
from gateway.ledger import BadLedger
from gateway.settings import Settings
from scripts import drain_gateway
from scripts.host.preflight import Refused

REFUSED = 2


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="scripts/gateway",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    default = Settings()
    add = found.add_argument
    add("--triton", default=default.triton, metavar="HOST:PORT", help="its gRPC endpoint (127.0.0.1:8001)")
    add("--triton-metrics", metavar="URL", help="(http://HOST:8002/metrics of --triton; none: leave them out)")
    add("--host", default=default.host, help="address to listen on (127.0.0.1)")
    add("--port", type=int, default=default.port, metavar="N", help="9000; 0 takes a free one")
    add("--workers", type=int, default=default.workers, metavar="N", help="processes, where one core is not enough (1)")
    add("--keys", type=Path, metavar="FILE", help="whose requests are answered; made by scripts/keys")
    add("--open", action="store_true", help="without keys on any address: where something else decides who comes here")
    add("--ledger", type=Path, metavar="DIR", help="a JSON line for every request that cost something, a file a month")
    add("--price", action="append", default=[], metavar="MODEL=IN,OUT", help="of 1,000 tokens (those of bls/policy.py)")
    add("--admin", metavar="[HOST:]PORT", help="a port on which POST /drain is taken, of this machine if not told else")
    add("--no-page", action="store_true", help="no chat page at /")
    add("--open-metrics", action="store_true", help="/metrics without a key")
    add("--origin", action="append", default=[], metavar="URL", help="whose pages may ask from a browser, repeatable")
    add("--refusals", choices=("answer", "error"), default="answer", help="a refused prompt: finish_reason, or a 400")
    limits = found.add_argument_group("limits", "those of numbers at a time are of each worker")
    for name, purpose in LIMITS.items():
        value = getattr(default, name)
        unit = "S" if name.endswith("_s") else "N"
        options = [f"--{name.replace('_', '-')}", *(["--drain-seconds"] if name == "drain_s" else [])]
        limits.add_argument(*options, type=type(value), default=value, metavar=unit, help=f"{purpose} ({value:g})")
    limits.add_argument(
        "--lame-duck-s",
        type=float,
        default=default.lame_duck_s,
        metavar="S",
        help="seconds between /ready saying no and the first request that is turned away (0)",
    )
    return found


LIMITS = {
    "parked_s": "seconds that a request waits for a server that is away",
    "max_parked": "requests that wait so at a time",
    "max_in_flight": "answers at a time, over all keys",
    "max_connections": "connections at a time",
    "max_body_bytes": "bytes of a request's body",
    "head_s": "seconds that a request's head may take",
    "body_s": "seconds that its body may take",
    "slow_reader_s": "seconds that a client may take nothing before it is cut",
    "silent_s": "seconds without a token after which a stream gets a comment",
    "server_silent_s": "seconds without a token after which Triton must say that it lives, or its streams end",
    "timeout_s": "seconds that an answer may take",
    "drain_s": "seconds that answers have to end once the gateway is stopped",
}


def settings_of(options: argparse.Namespace) -> Settings:
    """Raises Refused."""
    if options.keys is None and not options.open and not _is_loopback(options.host):
        raise Refused(f"--host {options.host} needs --keys FILE: without keys anyone there could ask (or --open)")
    host = options.triton.rpartition(":")[0]
    if not host:
        raise Refused(f"--triton must be HOST:PORT, not {options.triton!r}")
    if not 1 <= options.workers <= MAX_WORKERS:
        raise Refused(f"--workers must be 1 to {MAX_WORKERS}")
    for name in LIMITS:
        if getattr(options, name) <= 0:
            raise Refused(f"--{name.replace('_', '-')} must be more than 0")
    if options.lame_duck_s < 0:
        raise Refused("--lame-duck-s must be 0 or more")
    tiers = _tiers()
    metrics = options.triton_metrics or f"http://{host}:8002/metrics"
    return Settings(
        triton=options.triton,
        triton_metrics="" if metrics == "none" else metrics,
        host=options.host,
        port=options.port,
        workers=options.workers,
        keys=options.keys,
        is_open=options.open,
        ledger=options.ledger,
        tiers={tier.name: tier.model for tier in tiers},
        prices=_prices(options.price, tiers),
        has_page=not options.no_page,
        refusals_are_errors=options.refusals == "error",
        metrics_are_open=options.open_metrics,
        origins=tuple(options.origin),
        lame_duck_s=options.lame_duck_s,
        admin=_admin(options),
        **{name: getattr(options, name) for name in LIMITS},
    )


def _admin(options: argparse.Namespace) -> tuple[str, int] | None:
    if options.admin is None:
        return None
    try:
        found = drain_gateway.address(options.admin)
    except ValueError:
        raise Refused(f"--admin must be PORT or HOST:PORT, not {options.admin!r}") from None
    if found == (options.host, options.port):
        raise Refused(f"--admin must not be the gateway's own --port {options.port}")
    return found


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _tiers() -> Sequence[Tier]:
    """Those of the policy that LLM_ROUTER_POLICY names, else of bls/policy.py; those of the latter for a bad file."""
    try:
        return load_policy(SHIPPED).settings.tiers
    except BadPolicy as problem:
        logging.warning("tiers and prices are those of bls/policy.py: %s", problem)
        return TIERS


def _prices(given: Sequence[str], tiers: Sequence[Tier]) -> dict[str, tuple[float, float]]:
    found = {tier.model: (tier.cost_in, tier.cost_out) for tier in tiers}
    for text in given:
        model, _, numbers = text.partition("=")
        try:
            price_in, price_out = map(float, numbers.split(","))
        except ValueError:
            raise Refused(f"--price must be MODEL=IN,OUT, not {text!r}") from None
        found[model] = price_in, price_out
    return found


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] in (["drain"], ["undrain"]):
        return drain_gateway.main(arguments)
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s")
    try:
        settings = settings_of(options)
        listeners = server.listen(settings)
        if settings.keys is None:
            logging.warning("no --keys: anyone who reaches %s may ask", settings.host)
        return server.run(settings, listeners, logging.info)
    except (Refused, BadKeys, BadLedger) as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.strerror or error}: {error.filename}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
