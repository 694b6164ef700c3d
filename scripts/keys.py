"""Makes, lists and removes the gateway's API keys. A running gateway takes a change within a second.

    scripts/keys add alice --tenant acme --rpm 60 --tpm 40000 --concurrency 4 --priority 2
    scripts/keys list
    scripts/keys remove alice

The key is printed once and kept nowhere: the file holds its SHA-256.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.keys import LIMITS, BadKeys, Key, new_key, read_file, read_limit, read_line

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_FILE = ROOT / "keys.txt"
_HEADING = "# Keys of the gateway, by scripts/keys: name, SHA-256 of the key, limits (0 or left out: none).\n"
_HELP = {
    "tenant": "whose it is: the policy's `tenant`",
    "rpm": "requests a minute",
    "tpm": "tokens a minute, prompt and answer together",
    "concurrency": "answers at a time",
    "priority": "the highest of the router's queue that it may ask for: 1, 2 or 3 (2)",
    "monthly_tokens": "tokens a calendar month (UTC)",
    "monthly_cost": "costs a calendar month, in the unit of the policy's prices",
    "models": "the only names of models that it may use, with commas between",
}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="scripts/keys", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--file", type=Path, default=DEFAULT_FILE, help="(keys.txt)")
    commands = found.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="make a key and print it")
    add.add_argument("name")
    for name in LIMITS:
        option = f"--{name.replace('_', '-')}"
        add.add_argument(option, dest=name, metavar="N" if name in _NUMBERS else "TEXT", help=_HELP[name])
    remove = commands.add_parser("remove", help="from then on the key is refused")
    remove.add_argument("name")
    commands.add_parser("list", help="names and limits")
    return found


_NUMBERS = {name for name, default in LIMITS.items() if isinstance(default, int | float)}


def add(file: Path, name: str, limits: dict[str, str]) -> str:
    """Makes a key and returns it. Raises BadKeys."""
    key, digest = new_key()
    values: dict[str, Any] = {option: read_limit(option, value) for option, value in limits.items()}
    made = Key(name, digest, **values)
    read_line(made.line())
    with _changed(file) as keys:
        if name in (other.name for other in keys):
            raise BadKeys(f"there is a key named {name}; remove it first")
        keys.append(made)
    return key


def remove(file: Path, name: str) -> None:
    """Raises BadKeys."""
    with _changed(file) as keys:
        if name not in (key.name for key in keys):
            raise BadKeys(f"there is no key named {name}")
        keys[:] = [key for key in keys if key.name != name]


@contextmanager
def _changed(file: Path) -> Iterator[list[Key]]:
    """The file's keys, to be changed in place; written back at once, and readable by its owner alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = read_file(file) if file.exists() else []
        yield keys
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
            output.write(_HEADING + "".join(f"{key.line()}\n" for key in keys))
        draft.replace(file)


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.command == "add":
            limits = {name: getattr(options, name) for name in LIMITS if getattr(options, name) is not None}
            print(add(options.file, options.name, limits))
            print("The key above is shown this once; its SHA-256 is in", options.file, file=sys.stderr)
        elif options.command == "remove":
            remove(options.file, options.name)
        else:
            for key in read_file(options.file) if options.file.exists() else []:
                print(key.line().replace(key.digest, f"{key.digest[:8]}…"))
    except (BadKeys, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
