"""The parameters of configs/remote.pbtxt, and the endpoints that LLM_ROUTER_REMOTE names in their place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.worker.parameters import BOOLEAN, BadParameter, number

VARIABLE = "LLM_ROUTER_REMOTE"  # such as "small=10.0.0.1:8001,10.0.0.2:8001 large=large.llm.svc:8001"
Header = tuple[str, str]
_FORM = "HOST:PORT, or several separated by commas"
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})")


@dataclass(frozen=True, order=True)
class Address:
    """A host, by name or number, and the port of its gRPC."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RemoteParameters:
    """`endpoints` may be names with several addresses. A `metrics_port` of 0: nothing is read there. Times in seconds.

    `prefix_blocks`: so many blocks of the KV cache at a prompt's beginning choose its endpoint; 0: they don't.
    """

    endpoints: tuple[Address, ...] = ()
    metrics_port: int = 8002
    prefix_blocks: int = 2
    slow_start_seconds: float = 10.0
    resolve_seconds: float = 5.0
    silent_seconds: float = 10.0
    compare_models: bool = True
    key: Header | None = field(default=None, repr=False)


def addresses(text: str) -> tuple[Address, ...]:
    """Of "HOST:PORT,HOST:PORT". Raises ValueError, which says the form."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        matched = _ADDRESS.fullmatch(part)
        if not matched or not 0 < int(matched["port"]) < 65536:
            raise ValueError(f"legal: {_FORM}")
        found.append(Address(matched["six"] or matched["host"], int(matched["port"])))
    if len(set(found)) < len(found):
        raise ValueError("an endpoint is named twice")
    return tuple(found)


def by_tier(text: str) -> dict[str, tuple[Address, ...]]:
    """Of "TIER=HOST:PORT,HOST:PORT TIER=...". Raises ValueError, which says the form."""
    found: dict[str, tuple[Address, ...]] = {}
    for part in text.split():
        tier, equals, listed = part.partition("=")
        if not equals or not tier or not listed.strip(","):
            raise ValueError(f"legal: TIER={_FORM}")
        if tier in found:
            raise ValueError(f"the tier {tier} is named twice")
        found[tier] = addresses(listed)
    return found


def _key(path: str) -> Header | None:
    """The header that a file holds as curl takes it. Raises ValueError."""
    if not path:
        return None
    try:
        name, colon, value = Path(path).read_text().strip().partition(": ")
    except OSError as error:
        raise ValueError(error.strerror) from None
    if not (colon and name and value):
        raise ValueError("legal: a file with one line, NAME: KEY")
    return name, value


# Name -> our field and its reader.
_READERS: dict[str, tuple[str, Any]] = {
    "endpoints": ("endpoints", addresses),
    "metrics_port": ("metrics_port", number(int, 0, 65535)),
    "prefix_blocks": ("prefix_blocks", number(int, 0, 1024)),
    "slow_start_seconds": ("slow_start_seconds", number(float, 0, 3600)),
    "resolve_seconds": ("resolve_seconds", number(float, 1, 3600)),
    "silent_seconds": ("silent_seconds", number(float, 2, 3600)),
    "compare_models": ("compare_models", BOOLEAN),
    "key_file": ("key", _key),
}


def read(given: Mapping[str, str], tier: str, environment: Mapping[str, str] = os.environ) -> RemoteParameters:
    """What config.pbtxt and the environment say of a tier. Raises BadParameter."""
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key == "engine":
            continue
        if key not in _READERS:
            raise BadParameter(f"parameter {key} is unknown; known: engine, {', '.join(_READERS)}")
        try:
            field_name, reader = _READERS[key]
            values[field_name] = reader(text)
        except ValueError as error:
            raise BadParameter(f"parameter {key} is {text!r}; {error}") from None
    try:
        named = by_tier(environment.get(VARIABLE, ""))
    except ValueError as error:
        raise BadParameter(f"{VARIABLE} is {environment.get(VARIABLE)!r}; {error}") from None
    if tier in named:
        values["endpoints"] = named[tier]
    if not values.get("endpoints"):
        raise BadParameter(f"no endpoint of the tier {tier} is named: in {VARIABLE}, or as parameter endpoints")
    return RemoteParameters(**values)
