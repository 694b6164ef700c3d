"""What rounds of scripts.bench batching gave: kept in a file, summed up, compared with the goals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.bench.rounds import percentile

MODES = ("none", "static", "dynamic", "in_flight", "burst", "bucketed")
BURSTS = ("burst", "bucketed")
GOALS = {
    "in flight / none, tokens/s": 6.0,
    "in flight / dynamic, tokens/s": 2.2,
    "dynamic / in flight, short mean": 5.0,
}


@dataclass(frozen=True)
class Answered:
    """One request: how many tokens it asked for and got, and the seconds that its client waited."""

    tokens: int
    seconds: float


@dataclass(frozen=True)
class Round:
    """What one round gave. `seconds` is from the first request to the last answer, emptying included."""

    answers: list[Answered]
    seconds: float
    load_before: float  # of the machine, over a minute: others' work counts too


def summary(rounds: Sequence[Round]) -> dict[str, float]:
    """Rates are medians over rounds; times are over all requests, then over those of the shortest length alone."""
    shortest = min(answer.tokens for each in rounds for answer in each.answers)
    every = [answer.seconds for each in rounds for answer in each.answers]
    short = [answer.seconds for each in rounds for answer in each.answers if answer.tokens == shortest]
    return {
        "requests": len(every),
        "tokens_per_second": statistics.median(sum(a.tokens for a in each.answers) / each.seconds for each in rounds),
        "requests_per_second": statistics.median(len(each.answers) / each.seconds for each in rounds),
        "mean_s": statistics.mean(every),
        "p99_s": percentile(every, 99),
        "short_mean_s": statistics.mean(short),
        "short_p99_s": percentile(short, 99),
        "load_before": max(each.load_before for each in rounds),
    }


def goals_of(found: dict[str, dict[str, float]], clients: int) -> dict[str, float]:
    """What the goals are about, as far as it was measured."""
    rates = {mode: found[key]["tokens_per_second"] for mode in MODES if (key := f"{mode}_{clients}") in found}
    short = {mode: found[key]["short_mean_s"] for mode in MODES if (key := f"{mode}_{clients}") in found}
    goals = {}
    if {"none", "in_flight"} <= rates.keys():
        goals["in flight / none, tokens/s"] = rates["in_flight"] / rates["none"]
    if {"dynamic", "in_flight"} <= rates.keys():
        goals["in flight / dynamic, tokens/s"] = rates["in_flight"] / rates["dynamic"]
        goals["dynamic / in flight, short mean"] = short["dynamic"] / short["in_flight"]
    if set(BURSTS) <= rates.keys():
        goals["bucketed / burst, tokens/s"] = rates["bucketed"] / rates["burst"]
    return goals


def table(found: dict[str, dict[str, float]], clients: Sequence[int]) -> str:
    columns = {
        "requests": "requests",
        "requests_per_second": "requests/s",
        "tokens_per_second": "tokens/s",
        "mean_s": "mean s",
        "p99_s": "P99 s",
        "short_mean_s": "short mean s",
        "short_p99_s": "short P99 s",
        "load_before": "load before",
    }
    lines = [f"{'clients, mode':<18}" + "".join(f"{title:>13}" for title in columns.values())]
    for count in clients:
        for mode in MODES:
            if values := found.get(f"{mode}_{count}"):
                cells = [f"{values[name]:13.0f}" if name == "requests" else f"{values[name]:13.2f}" for name in columns]
                lines.append(f"{count:>3} {mode:<14}" + "".join(cells))
        for name, ratio in goals_of(found, count).items():
            goal = f" (goal at 32 clients: {GOALS[name]:g})" if name in GOALS else ""
            lines.append(f"    {name}: {ratio:.2f}{goal}")
    return "\n".join(lines)


def rounds_of(kept: dict[str, Any]) -> dict[str, list[Round]]:
    """The rounds by mode and clients, such as none_16, of what --json left in its file."""
    return {
        key: [
            Round([Answered(*pair) for pair in each["answers"]], each["seconds"], each["load_before"])
            for each in rounds
        ]
        for key, rounds in kept["rounds"].items()
    }


class Kept:
    """The rounds by mode and clients, in a file if there is one; only those of the same settings are taken over."""

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self._path = path
        self._settings = settings
        self.rounds: dict[str, list[Round]] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            if kept["settings"] == settings:
                self.rounds = rounds_of(kept)

    def add(self, key: str, measured: Round) -> None:
        self.rounds.setdefault(key, []).append(measured)
        if self._path is not None:
            self._path.write_text(self.text() + "\n")

    def text(self) -> str:
        rounds = {
            key: [
                {**asdict(each), "answers": [[a.tokens, round(a.seconds, 3)] for a in each.answers]} for each in rounds
            ]
            for key, rounds in self.rounds.items()
        }
        return json.dumps({"settings": self._settings, "rounds": rounds})
