"""The log of decisions: a line of JSON for each, features and outcome, never a text; for `scripts/policy replay`.

All router processes append to one file. It is bounded: when it passes half of its size, it becomes `.1` and a new one
begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bls.routing.decision import Decision, Prompt, State
from bls.routing.decision_json import prompt_from_json, prompt_to_json, state_from_json, state_to_json


@dataclass(frozen=True)
class Recorded:
    """A line. `decision` is the policy's own, `outcome` what came of it: model, reason, finish, output_tokens."""

    prompt: Prompt
    state: State
    decision: Decision
    outcome: Mapping[str, Any]

    def line(self) -> bytes:
        made = {
            name: value
            for name, value in self.decision.as_json().items()
            if name not in ("tokens", "counted", "refused_edit")
        }
        whole = {
            "time": round(time.time(), 3),
            "prompt": prompt_to_json(self.prompt),
            "state": state_to_json(self.state),
            "now": self.state.now.isoformat(timespec="seconds"),
            "decision": made,
            "outcome": dict(self.outcome),
        }
        return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


def append(path: Path, recorded: Recorded, max_bytes: int) -> None:
    """One write, so that lines of several processes never mix; `max_bytes` bounds the file and its `.1` together.

    OSError where it can't be written.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, recorded.line())
        if os.fstat(file).st_size > max_bytes // 2:
            _turn_over(path, file)
    finally:
        os.close(file)


def _turn_over(path: Path, file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        # Another process may have done it while this one waited: then another file has the name.
        if os.stat(path).st_ino == os.fstat(file).st_ino:
            os.replace(path, path.with_name(path.name + ".1"))


def read(path: Path) -> Iterator[tuple[int, Recorded]]:
    """Each line's number, and what it records. ValueError names a line that is none."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                prompt, state = prompt_from_json(found["prompt"]), state_from_json(found["state"], found.get("now", ""))
                yield number, Recorded(prompt, state, Decision(**found["decision"]), found["outcome"])
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"{path}:{number}: not a recorded decision: {error!r}") from None
