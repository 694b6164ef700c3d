"""How well the head tells held-out prompts apart: the confusion matrix, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bls.classes import RISKS

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Evaluation:
    """`confusion[row][column]`: how many prompts of the row's class were taken for the column's."""

    labels: tuple[str, ...]
    fitted: int
    confusion: tuple[tuple[int, ...], ...]

    @property
    def held_out(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        """The share of prompts whose best class is theirs."""
        return sum(self.confusion[place][place] for place in range(len(self.labels))) / self.held_out

    @property
    def risks_found(self) -> float:
        """The share of the risks' prompts whose best class is a risk, whichever."""
        return self._taken_for_risk(True)

    @property
    def false_alarms(self) -> float:
        """The share of the intents' prompts whose best class is a risk."""
        return self._taken_for_risk(False)

    def _taken_for_risk(self, is_risk: bool) -> float:
        risks = [place for place, label in enumerate(self.labels) if label in RISKS]
        rows = [row for place, row in enumerate(self.confusion) if (place in risks) == is_risk]
        return sum(row[place] for row in rows for place in risks) / max(sum(map(sum, rows)), 1)

    def save(self, file: Path) -> None:
        shares = {name: round(getattr(self, name), 4) for name in ("accuracy", "risks_found", "false_alarms")}
        head = json.dumps({"held_out": self.held_out, **shares, **asdict(self), "confusion": None}, indent=2)
        rows = ",\n".join(f"    {json.dumps(row)}" for row in self.confusion)
        file.write_text(head.replace("null", f"[\n{rows}\n  ]") + "\n", encoding="utf-8")


def judge(labels: Sequence[str], classes: Array, logits: Array, fitted: int) -> Evaluation:
    """`classes` are the right ones, as places among the labels; `fitted` is how many prompts the head has seen."""
    table = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(table, (classes, logits.argmax(axis=1)), 1)
    return Evaluation(tuple(labels), fitted, tuple(map(tuple, table.tolist())))


def load(file: Path) -> Evaluation:
    """Raises OSError, ValueError or KeyError for a file that `save` hasn't written."""
    fields = json.loads(file.read_text(encoding="utf-8"))
    return Evaluation(tuple(fields["labels"]), fields["fitted"], tuple(map(tuple, fields["confusion"])))
