"""How well the head tells held-out prompts apart: the confusion matrix, and how often a risk is seen or imagined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bls.arrays import Array
from engines.classifier.head import softmax
from engines.classifier.labels import RISKS

SCORES = (0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Alarms:
    """Were a prompt refused from this score of any risk on: the share of the risks' prompts that is `found`, and of the
    intents' prompts that is a `false` alarm."""

    score: float
    found: float
    false: float


@dataclass(frozen=True)
class Evaluation:
    """`confusion[row][column]`: how many prompts of the row's class were taken for the column's. `fitted` counts the
    prompts that the head has seen, which are others."""

    labels: tuple[str, ...]
    fitted: int
    confusion: tuple[tuple[int, ...], ...]
    alarms: tuple[Alarms, ...]

    @property
    def held_out(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        """The share of prompts whose best class is theirs."""
        return sum(self.confusion[place][place] for place in range(len(self.labels))) / self.held_out

    def save(self, file: Path) -> None:
        """As JSON with one row of the matrix a line."""
        rows = ",\n".join(f"    {json.dumps(row)}" for row in self.confusion)
        alarms = ",\n".join(f"    {json.dumps(vars(each))}" for each in self.alarms)
        counts = f'"accuracy": {self.accuracy:.4f},\n  "held_out": {self.held_out},\n  "fitted": {self.fitted}'
        lists = f'"alarms": [\n{alarms}\n  ],\n  "labels": {json.dumps(self.labels)},\n  "confusion": [\n{rows}\n  ]'
        file.write_text(f"{{\n  {counts},\n  {lists}\n}}\n", encoding="utf-8")


def judge(labels: Sequence[str], classes: Array, logits: Array, fitted: int) -> Evaluation:
    """`classes` are the right ones, as places among the labels, one for each row of `logits`."""
    table = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(table, (classes, logits.argmax(axis=1)), 1)
    risks = [place for place, label in enumerate(labels) if label in RISKS]
    worst = softmax(logits)[:, risks].max(axis=1, initial=0.0)
    is_risk = np.isin(classes, risks)
    alarms = [Alarms(score, _share(worst[is_risk], score), _share(worst[~is_risk], score)) for score in SCORES]
    return Evaluation(tuple(labels), fitted, tuple(map(tuple, table.tolist())), tuple(alarms))


def _share(scores: Array, score: float) -> float:
    return round(float((scores >= score).mean()), 4) if len(scores) else 0.0


def load(file: Path) -> Evaluation:
    """Raises OSError, ValueError, TypeError or KeyError for a file that `save` hasn't written."""
    fields = json.loads(file.read_text(encoding="utf-8"))
    alarms = tuple(Alarms(**each) for each in fields["alarms"])
    return Evaluation(tuple(fields["labels"]), fields["fitted"], tuple(map(tuple, fields["confusion"])), alarms)
