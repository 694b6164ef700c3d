"""scripts/serve --tier: one tier's engine alone, for routers elsewhere. --remote: a router whose tiers are there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Mapping, Sequence

from bls.contract import ENGINE_CONTROL, ENGINE_PREFIX, LLAMA_7B
from bls.tiers import is_engine, tier_of
from engines.remote import settings
from engines.remote.settings import Address
from scripts.host.preflight import Refused

CONFIG_NAME = "remote"  # of the variants that such a router's models have


def add_to(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tiers on machines of their own")
    group.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="TIER",
        help="serve this tier's engine alone, for routers on other machines; repeatable",
    )
    group.add_argument(
        "--remote",
        action="append",
        default=[],
        metavar="TIER=HOST:PORT[,...]",
        help="load no engine here: the tier's engine servers are there (gRPC); a name may stand for many of them; "
        f"repeatable (default: what {settings.VARIABLE} says)",
    )


def remote(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> str:
    """What the server's processes are told of its tiers, as LLM_ROUTER_REMOTE; "" where engines are loaded here.

    Raises Refused for what names no endpoints.
    """
    text = " ".join(options.remote) or ("" if options.tier else environment.get(settings.VARIABLE, ""))
    if text and options.tier:
        raise Refused("--tier serves an engine here, and --remote none: give one of them")
    if text and options.target != "cpu":
        raise Refused("--remote needs serve cpu: a router without engines of its own has no use for a GPU")
    _tiers(text)
    return text


def left_out(models: Sequence[str], skipped: Collection[str], named: Collection[str], text: str) -> set[str]:
    """Those of `models` that a router with remote tiers doesn't load, whether they are `skipped` or not.

    The engine behind Triton's batcher is one: it computes on its own machine alone. Raises Refused where a tier that is
    served (`named`, where a person has named models) has no endpoints, or the other way round.
    """
    if LLAMA_7B in named:
        raise Refused(f"--remote leaves {LLAMA_7B} out, which --load-model names: it computes on its own machine alone")
    tiers = _tiers(text)
    engines = {tier_of(each): each for each in named or models if is_engine(each) and each not in skipped}
    for tier in tiers.keys() - engines.keys():
        raise Refused(f"--remote names the tier {tier}, which is not served; there are {', '.join(engines)}")
    for tier, model in engines.items():
        if tier not in tiers:
            raise Refused(
                f"--remote does not say where the tier {tier} is: name it, or leave it out by --skip-model={model}"
            )
    return {LLAMA_7B} & set(models) if not named else set()


def alone(models: Sequence[str], tiers: Sequence[str], chosen: Collection[str]) -> list[str]:
    """Those of `models` that an engine server loads. Raises Refused for a tier that there isn't, and where a person has
    `chosen` models in another way too."""
    if chosen:
        raise Refused("--tier cannot be combined with --load-model or --skip-model")
    wanted = [ENGINE_CONTROL, *(f"{ENGINE_PREFIX}{tier}" for tier in dict.fromkeys(tiers))]
    for model in wanted:
        if model not in models:
            known = ", ".join(tier_of(each) for each in models if is_engine(each))
            raise Refused(f"--tier: there is no model {model}; the tiers are {known}")
    return wanted


def _tiers(text: str) -> dict[str, tuple[Address, ...]]:
    try:
        return settings.by_tier(text)
    except ValueError as error:
        raise Refused(f"--remote is {text!r}; {error}") from None
