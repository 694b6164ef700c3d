"""Which flags TensorRT-LLM's programs take, from flags.toml, and whether a command keeps to them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from engines.toml_file import tomllib

FILE = Path(__file__).with_name("flags.toml")
BUILD = "trtllm-build"
CONVERT = {family: f"models/core/{family}/convert_checkpoint.py" for family in ("llama", "qwen")}
QUANTIZE = "quantization/quantize.py"

_TYPES: dict[str, Any] = {"text": str, "int": int, "float": float}


class BadCommand(ValueError):
    """A flag or a value isn't known to the program; the message is one line that names both."""


@dataclass(frozen=True)
class Flag:
    """One flag, without its dashes. `kind` is "text", "int", "float" or "switch"; `choices` are the legal values."""

    name: str
    kind: str = "text"
    choices: tuple[str, ...] = ()
    many: bool = False
    optional: bool = False
    required: bool = False
    alias: str = ""

    @property
    def names(self) -> list[str]:
        """As they are written: "--smoothquant", "-sq"."""
        return [name if name.startswith("-") else f"--{name}" for name in (self.name, self.alias) if name]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        if self.kind == "switch":
            parser.add_argument(*self.names, action="store_true")
            return
        count = "+" if self.many else "?" if self.optional else None
        kind, choices = _TYPES[self.kind], self.choices or None
        parser.add_argument(*self.names, type=kind, choices=choices, nargs=count, required=self.required)


@dataclass(frozen=True)
class Program:
    """`name` is "trtllm-build" or a script's path below TensorRT-LLM's examples."""

    name: str
    source: tuple[str, ...]
    flags: Mapping[str, Flag]

    def parser(self) -> argparse.ArgumentParser:
        """One that raises BadCommand, and takes no abbreviations."""
        parser = _Parser(prog=self.name.rpartition("/")[2], allow_abbrev=False, add_help=False)
        for flag in self.flags.values():
            flag.add_to(parser)
        return parser

    def check(self, arguments: Sequence[str]) -> None:
        """Raises BadCommand."""
        self.parser().parse_args(arguments)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadCommand(f"{self.prog}: {message}")


@cache
def versions() -> tuple[str, ...]:
    """The versions of TensorRT-LLM that the table holds for: ("1.1", "1.2")."""
    return tuple(_tables()["versions"])


@cache
def programs() -> Mapping[str, Program]:
    """By name: BUILD, those of CONVERT, QUANTIZE."""
    tables = {name: table for name, table in _tables().items() if name != "versions"}
    return {name: Program(name, tuple(table["source"]), _flags(table["flags"])) for name, table in tables.items()}


def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tables


def _flags(table: Mapping[str, Any]) -> dict[str, Flag]:
    return {name: _flag(name, entry) for name, entry in table.items()}


def _flag(name: str, entry: Any) -> Flag:
    if isinstance(entry, str):
        return Flag(name, entry)
    if isinstance(entry, list):
        return Flag(name, choices=tuple(entry))
    return Flag(name, **{**entry, "choices": tuple(entry.get("choices", ()))})
