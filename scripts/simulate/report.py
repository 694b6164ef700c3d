"""What a simulation has shown, in numbers for a table and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scripts.simulate.run import Outcome

Row = Mapping[str, Any]
COLUMNS = {
    "wait_p50_s": "waits 50%",
    "wait_p99_s": "99%",
    "first_p50_s": "first token 50%",
    "first_p99_s": "99%",
    "answer_p50_s": "answer 50%",
    "answer_p99_s": "99%",
    "late_share": "late",
    "turned_away_share": "turned away",
    "hit_share": "prefix hits",
    "imbalance": "busiest/mean",
    "pods_mean": "pods",
    "pods_most": "most",
}
LATE_S = 5.0  # a first token after that, as the alert FirstTokenLate has it


def row(name: str, outcome: Outcome, warm_up_s: float = 0.0) -> Row:
    """Seconds; shares are 0 to 1. Requests that came in the warm-up are left out of the times."""
    came = [each for each in outcome.requests if each.arrival.at_s >= warm_up_s]
    kept = [each for each in came if each.pod >= 0]
    found: dict[str, Any] = {"name": name, "requests": len(came)}
    found["turned_away_share"] = round(1 - len(kept) / len(came), 4) if came else 0.0
    times = {
        "wait": [_since(each.started_s, each.arrival.at_s) for each in kept],
        "first": [_since(each.first_s, each.arrival.at_s) for each in kept],
        "answer": [_since(each.ended_s, each.arrival.at_s) for each in kept],
    }
    for kind, seconds in times.items():
        for share in (50, 99):
            found[f"{kind}_p{share}_s"] = round(float(np.percentile(seconds, share)), 4) if seconds else 0.0
        found[f"{kind}_mean_s"] = round(float(np.mean(seconds)), 4) if seconds else 0.0
    served = np.array([pod.tokens for pod in outcome.pods if pod.served])
    count = sum(pod.served for pod in outcome.pods)
    found["late_share"] = round(float(np.mean([each > LATE_S for each in times["first"]])), 4) if kept else 0.0
    found["hit_share"] = round(sum(pod.hits for pod in outcome.pods) / count, 4) if count else 0.0
    found["imbalance"] = round(float(served.max() / served.mean()), 3) if len(served) else 0.0
    found["pods_mean"] = round(_mean(outcome), 3)
    found["pods_most"] = max(number for _, number in outcome.counts)
    return found


def _since(at: float | None, begin: float) -> float:
    assert at is not None, "a request was lost"
    return at - begin


def _mean(outcome: Outcome) -> float:
    """Over time."""
    ends = [at for at, _ in outcome.counts[1:]] + [outcome.end_s]
    total = sum((end - at) * number for (at, number), end in zip(outcome.counts, ends, strict=True))
    return total / outcome.end_s if outcome.end_s else float(outcome.counts[0][1])


def table(rows: Sequence[Row]) -> str:
    """For a person."""
    cells = [["", *COLUMNS.values()]]
    cells += [[str(each["name"]), *(f"{each[column]:.3g}" for column in COLUMNS)] for each in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
