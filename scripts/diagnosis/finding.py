"""What the doctor says: what is wrong, by which figure, and what to change; or why it can't say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Weight(IntEnum):
    """How bad it is; the worst comes first in a report."""

    NOTE = 1  # time or memory wasted, or a dashboard that misleads
    SLOW = 2  # requests take longer than they need
    FAILING = 3  # requests fail, or soon will


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `name` is the word that docs/troubleshooting.md explains; `subject` a model mostly.

    `figure` is what was seen, `meaning` what that is, `file` and `key` where to change it, `change` by how much.
    """

    name: str
    weight: Weight
    subject: str
    figure: str
    meaning: str
    file: str
    key: str
    change: str


@dataclass(frozen=True)
class NotJudged:
    """A rule that saw too little to say anything."""

    name: str
    why: str
