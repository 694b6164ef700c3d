"""What a test turns at the engines of a pod that serves: a file above the model repository, read for each request."""

from __future__ import annotations

import json
from pathlib import Path

FILE = "knobs.json"


def turn(folder: Path, **knobs: float) -> None:
    """slowdown: tokens take so many times longer; places: requests that run at a time; held: answers of so many tokens
    and more don't get their last one. None is turned unless named."""
    draft = folder / f".{FILE}"
    draft.write_text(json.dumps(knobs))
    draft.replace(folder / FILE)


def read(folder: Path, name: str, default: float) -> float:
    file = folder / FILE
    return float(json.loads(file.read_text()).get(name, default)) if file.exists() else default
