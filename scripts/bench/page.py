"""Writes the tables of docs/benchmarks.md, and its pictures, from what the benchmarks left in docs/benchmarks/*.json.

    python -m scripts.bench batching --json docs/benchmarks/batching.json
    python -m scripts.bench.page

The text between the tables is edited by hand; what stands between `<!-- table: NAME -->` and `<!-- end -->` is not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bls.contract import POSTPROCESSING, PREPROCESSING
from bls.paths import ROOT
from scripts.bench import batching_rounds, classifier
from scripts.bench.bars import Bar, Panel, draw, rounded

PAGE = ROOT / "docs" / "benchmarks.md"
BATCHING = {
    "requests_per_second": "requests/s",
    "tokens_per_second": "tokens/s",
    "mean_s": "mean s",
    "p99_s": "P99 s",
    "short_mean_s": "short ones: mean s",
    "short_p99_s": "P99 s",
}
CLASSIFIER = {"per_second": "requests/s", "p50_ms": "P50 ms", "p99_ms": "P99 ms", "batch": "batch", "cpu_ms": "CPU ms"}
DETOKENIZED = {PREPROCESSING: "tokenizer", POSTPROCESSING: "detokenizer"}
Found = dict[str, Any]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def batching_table(found: Found) -> str:
    """Each way to batch by number of clients, then the ratios that the goals are about."""
    summaries, counts = _batching(found)
    rows = [
        [str(count), mode.replace("_", " "), *(rounded(summaries[key][name]) for name in BATCHING)]
        for count in counts
        for mode in batching_rounds.MODES
        if (key := f"{mode}_{count}") in summaries
    ]
    ratios = [
        f"* {count} clients, {name}: {ratio:.2f}"
        for count in counts
        for name, ratio in batching_rounds.goals_of(summaries, count).items()
    ]
    settings = found["settings"]
    asked = f"Output lengths {', '.join(map(str, settings['lengths']))} tokens in turn; {settings['machine']}."
    return "\n".join([markdown(["clients", "", *BATCHING.values()], rows), "", *ratios, "", asked])


def batching_picture(found: Found) -> str:
    summaries, counts = _batching(found)

    def panel(title: str, name: str) -> Panel:
        bars = [
            Bar(f"{mode.replace('_', ' ')}, {count} clients", summaries[key][name], mode)
            for count in counts
            for mode in batching_rounds.MODES
            if (key := f"{mode}_{count}") in summaries
        ]
        return Panel(title, bars)

    return draw(
        [
            panel("Tokens per second", "tokens_per_second"),
            panel("Seconds that a short answer takes, mean", "short_mean_s"),
        ]
    )


def _batching(found: Found) -> tuple[dict[str, dict[str, float]], list[int]]:
    rounds = batching_rounds.rounds_of(found)
    summaries = {key: batching_rounds.summary(each) for key, each in rounds.items()}
    return summaries, sorted({int(key.rpartition("_")[2]) for key in summaries})


def classifier_table(found: Found) -> str:
    rows = []
    for length, clients, kinds in _classifier(found):
        for kind, values in kinds.items():
            gain = found[f"tokens_{length}_clients_{clients}"].get(f"{kind}_over_plain")
            over = f"{gain['median']:.2f} ({gain['min']:.2f} to {gain['max']:.2f})" if gain else ""
            rows.append([length, clients, kind, *(rounded(values[name]) for name in CLASSIFIER), over])
    int8 = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in found["int8"].items())
    head = ["tokens", "clients", "", *CLASSIFIER.values(), "requests/s over plain (min to max)"]
    alone = f"ONNX Runtime alone, one thread: {classifier.alone_text(found['alone'])}."
    return "\n".join([markdown(head, rows), "", f"On held-out prompts: {int8}. {found['cores']} cores.", "", alone])


def classifier_picture(found: Found) -> str:
    cells = list(_classifier(found))
    most = max((int(clients) for _, clients, _ in cells), default=0)
    panels = []
    for title, name in (("Requests per second", "per_second"), ("P99 in ms", "p99_ms")):
        bars = [
            Bar(f"{kind}, {length} tokens", values[name], kind)
            for length, clients, kinds in cells
            if int(clients) == most
            for kind, values in kinds.items()
        ]
        panels.append(Panel(f"{title}, {most} clients", bars))
    return draw(panels)


def _classifier(found: Found) -> list[tuple[str, str, dict[str, dict[str, float]]]]:
    """Length of the texts, clients, and what each kind of serving gave."""
    cells = []
    for key, values in found.items():
        if name := re.fullmatch(r"tokens_(\w+)_clients_(\d+)", key):
            kinds = {kind: values[kind] for kind in classifier.KINDS if kind in values}
            cells.append((name[1], name[2], kinds))
    return cells


def instances_table(found: Found) -> str:
    names = {"requests_per_second": "requests/s", "p50_ms": "P50 ms", "p99_ms": "P99 ms"}
    rows = [
        [
            DETOKENIZED[cell["model"]],
            cell["text"],
            str(cell["instances"]),
            str(cell["delay_us"]),
            *(rounded(cell[name]) for name in names),
        ]
        for cell in found["results"]
    ]
    return markdown(["", "text", "instances", "queue delay us", *names.values()], rows)


def instances_picture(found: Found) -> str:
    panels = []
    for model, title in DETOKENIZED.items():
        bars = [
            Bar(
                f"{cell['text']} text, {cell['instances']} instances",
                cell["requests_per_second"],
                f"{cell['instances']} instances",
            )
            for cell in found["results"]
            if cell["model"] == model and cell["delay_us"] == 0
        ]
        panels.append(Panel(f"{title.capitalize()}: requests per second, no queue delay", bars))
    return draw(panels)


PARTS: dict[str, tuple[Callable[[Found], str], Callable[[Found], str]]] = {
    "batching": (batching_table, batching_picture),
    "classifier": (classifier_table, classifier_picture),
    "instances": (instances_table, instances_picture),
}


def written(page: str, name: str, table: str) -> str:
    """The page with that table in its place. Raises ValueError where it has none."""
    begin, end = f"<!-- table: {name} -->", "<!-- end -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"docs/benchmarks.md has no {begin} with an {end} after it")
    return f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> int:
    if arguments if arguments is not None else sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    folder, text = page.with_suffix(""), page.read_text(encoding="utf-8")
    for name, (table, picture) in PARTS.items():
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        text = written(text, name, table(found))
        (folder / f"{name}.svg").write_text(picture(found), encoding="utf-8")
        print(f"{name}: {page.name}, {folder.name}/{name}.svg")
    page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
