"""How well the head tells held-out prompts apart, by language.

The confusion matrix, how far its scores can be believed, and how often a risk is seen or imagined.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bls.arrays import Array
from engines.classifier.head import softmax
from engines.classifier.labels import LABELS, RISKS

SCORES = (0.5, 0.7, 0.9)
BANDS = (0.0, 0.5, 0.7, 0.9)  # where the bands of a best score begin in which its reliability is told


@dataclass(frozen=True)
class Alarms:
    """Were a prompt refused from this score of any risk on: the share of the risks' prompts that is `found`, and of the
    intents' prompts that is a `false` alarm; and how many of the prompts that only sound like a risk are `refused`."""

    score: float
    found: float
    false: float
    refused: int


@dataclass(frozen=True)
class Band:
    """The prompts whose best score is at least `begin`, and below the next band: of `count`, so many are `right`."""

    begin: float
    count: int
    right: int
    mean_score: float


@dataclass(frozen=True)
class Language:
    """`confusion[row][column]`: how many prompts of the row's class were taken for the column's."""

    code: str
    confusion: tuple[tuple[int, ...], ...]
    bands: tuple[Band, ...]
    alarms: tuple[Alarms, ...]
    innocent: int

    @property
    def held_out(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        """The share of prompts whose best class is theirs."""
        return sum(self.confusion[place][place] for place in range(len(self.confusion))) / max(self.held_out, 1)


@dataclass(frozen=True)
class Judged:
    """Prompts with their logits: `classes` are the right ones, as places among the labels; -1 is an innocent prompt."""

    classes: Array
    languages: Sequence[str]
    logits: Array


@dataclass(frozen=True)
class Evaluation:
    """`fitted` counts the prompts that the head has seen, which are others than those that judge it."""

    labels: tuple[str, ...]
    fitted: int
    languages: tuple[Language, ...]

    @property
    def held_out(self) -> int:
        return sum(language.held_out for language in self.languages)

    @property
    def accuracy(self) -> float:
        return sum(language.accuracy * language.held_out for language in self.languages) / self.held_out

    def save(self, file: Path) -> None:
        """As JSON with one row of a matrix a line."""
        languages = ",\n".join(_text(language) for language in self.languages)
        counts = f'"accuracy": {self.accuracy:.4f},\n  "held_out": {self.held_out},\n  "fitted": {self.fitted}'
        lists = f'"labels": {json.dumps(self.labels)},\n  "languages": [\n{languages}\n  ]'
        file.write_text(f"{{\n  {counts},\n  {lists}\n}}\n", encoding="utf-8")


def _text(language: Language) -> str:
    rows = ",\n".join(f"      {json.dumps(row)}" for row in language.confusion)
    fields = {name: value for name, value in asdict(language).items() if name != "confusion"}
    head = ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
    return f'    {{\n{head},\n    "accuracy": {language.accuracy:.4f},\n    "confusion": [\n{rows}\n    ]}}'


def judge(judged: Judged, fitted: int, labels: Sequence[str] = LABELS) -> Evaluation:
    """By language, in the order in which the languages first occur."""
    codes = np.array(judged.languages)
    found = []
    for code in dict.fromkeys(judged.languages):
        here = codes == code
        found.append(_language(code, judged.classes[here], softmax(judged.logits[here]), labels))
    return Evaluation(tuple(labels), fitted, tuple(found))


def _language(code: str, classes: Array, scores: Array, labels: Sequence[str]) -> Language:
    is_innocent = classes < 0
    kinds, held_out = classes[~is_innocent], scores[~is_innocent]
    table = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(table, (kinds, held_out.argmax(axis=1)), 1)
    risks = [place for place, label in enumerate(labels) if label in RISKS]
    worst = scores[:, risks].max(axis=1, initial=0.0)
    is_risk = np.isin(classes, risks)
    is_intent = ~is_risk & ~is_innocent
    alarms = [
        Alarms(
            score,
            _share(worst[is_risk], score),
            _share(worst[is_intent], score),
            int((worst[is_innocent] >= score).sum()),
        )
        for score in SCORES
    ]
    confusion = tuple(map(tuple, table.tolist()))
    return Language(code, confusion, _bands(kinds, held_out), tuple(alarms), int(is_innocent.sum()))


def _bands(classes: Array, scores: Array) -> tuple[Band, ...]:
    best, is_right = scores.max(axis=1, initial=0.0), scores.argmax(axis=1) == classes
    found = []
    for begin, end in zip(BANDS, (*BANDS[1:], 1.01), strict=True):
        here = (best >= begin) & (best < end)
        mean = round(float(best[here].mean()), 4) if here.any() else 0.0
        found.append(Band(begin, int(here.sum()), int(is_right[here].sum()), mean))
    return tuple(found)


def _share(scores: Array, score: float) -> float:
    return round(float((scores >= score).mean()), 4) if len(scores) else 0.0


def load(file: Path) -> Evaluation:
    """Raises OSError, ValueError, TypeError or KeyError for a file that `save` hasn't written."""
    fields = json.loads(file.read_text(encoding="utf-8"))
    return Evaluation(tuple(fields["labels"]), fields["fitted"], tuple(map(_loaded, fields["languages"])))


def _loaded(fields: dict[str, Any]) -> Language:
    return Language(
        fields["code"],
        tuple(map(tuple, fields["confusion"])),
        tuple(Band(**each) for each in fields["bands"]),
        tuple(Alarms(**each) for each in fields["alarms"]),
        fields["innocent"],
    )
