"""What the programs of the set-up print, for a person: what they are at, and why they failed."""

from __future__ import annotations

import re


def pip_status(line: str) -> str | None:
    """What pip is at, from a line of its output; None if the line says nothing new."""
    if found := re.match(r"\s*(?:Downloading|Using cached) (\S+?)-(\d[^-]*)-\S+ (\([\d.]+ MB\))", line):
        return f"{found[1]} {found[2]} {found[3]}"
    if line.startswith("Installing collected packages"):
        return "unpacking"
    if "Retrying" in line or "connection broken" in line:
        return "the package index does not answer; trying again"
    return None


def pip_reason(lines: list[str]) -> str:
    """Why pip failed, in one line."""
    text = "\n".join(lines)
    if re.search(r"No space left on device", text):
        return "the disk is full"
    if re.search(
        r"connection broken by|Max retries exceeded|Failed to establish|Read timed out|Connection ?Error", text
    ):
        return "no network: the package index could not be reached, and the first start needs it"
    errors = [line for line in lines if line.startswith("ERROR:")]
    return f"pip: {errors[-1][6:].strip()}" if errors else last_line(lines)


def engine_status(line: str) -> str | None:
    """What scripts/build_engines is at: its own progress line without step and clock."""
    return re.sub(r"^engine \w+: | \(\d+ s\)$", "", line.strip())[:100] or None


def first_line(lines: list[str]) -> str:
    """The first line that says something."""
    return last_line(lines[::-1])


def last_line(lines: list[str]) -> str:
    """The last line that says something."""
    return next(
        (line.strip().removeprefix("error: ") for line in reversed(lines) if line.strip()),
        "it ended without any output",
    )
