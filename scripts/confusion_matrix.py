"""Draws how well the text classifier tells its classes apart, by language, into docs/, and keeps its head.

    python -m scripts.confusion_matrix
    python -m scripts.confusion_matrix --folder /tmp

Rows are what held-out prompts are, columns what they were taken for. It shows what `scripts.build_engines classifier`
found last; build again after an example was edited. The head is kept in engines/classifier/shipped, so that a first
start with the same examples needn't fit it; with --folder it is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import onnx

from bls.paths import ROOT
from engines.classifier import build, evaluation, shipped
from engines.classifier.encoders import MODEL
from engines.classifier.evaluation import Evaluation, Language
from engines.classifier.labels import RISKS
from engines.classifier.manifest import CLASSIFIER
from scripts.build_engines import BUILT

PICTURES = {"classifier.svg": ("en",), "classifier-zh.svg": ("zh",), "classifier-others.svg": ()}  # (): all others
NAMES = {"en": "English", "zh": "Chinese"}
CELL, MARGIN = 26, 130


def svg(labels: Sequence[str], title: str, confusion: Sequence[Sequence[int]]) -> str:
    """A matrix as a picture; the darker a cell, the larger its share of the row. Risks are red."""
    size = MARGIN + CELL * len(labels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 10} {size + 34}" font-family="sans-serif">',
        f'<rect width="{size + 10}" height="{size + 34}" fill="#fff"/>',
    ]
    for row, label in enumerate(labels):
        middle = MARGIN + CELL * row + CELL / 2
        colour = "#a00" if label in RISKS else "#222"
        text = f'font-size="11" fill="{colour}">{escape(label)}</text>'
        parts.append(f'<text x="{MARGIN - 6}" y="{middle + 4}" text-anchor="end" {text}')
        turned = f'transform="translate({middle + 4} {MARGIN - 6}) rotate(-60)"'
        parts.append(f"<text {turned} {text}")
        total = sum(confusion[row]) or 1
        for column, count in enumerate(confusion[row]):
            parts.append(_cell(MARGIN + CELL * column, MARGIN + CELL * row, count, count / total, row == column))
    held_out, right = sum(map(sum, confusion)), sum(confusion[place][place] for place in range(len(labels)))
    caption = f"{title}: {right / max(held_out, 1):.1%} of {held_out} held-out prompts classified correctly"
    parts.append(f'<text x="{MARGIN}" y="{size + 22}" font-size="12" fill="#222">{caption}</text></svg>')
    return "\n".join(parts) + "\n"


def pictures(found: Evaluation) -> dict[str, str]:
    """By the name of its file: a picture for each language with many prompts, and one for all others together."""
    alone = {code for codes in PICTURES.values() for code in codes}
    drawn = {}
    for name, codes in PICTURES.items():
        languages = [each for each in found.languages if each.code in codes or (not codes and each.code not in alone)]
        title = ", ".join(NAMES.get(each.code, each.code) for each in languages)
        if languages:
            drawn[name] = svg(found.labels, title, np.sum([each.confusion for each in languages], axis=0).tolist())
    return drawn


def table(languages: Sequence[Language]) -> str:
    """A line for each language, in Markdown."""
    lines = [
        "| language | prompts | right | score 0.7 to 0.9: right | risks found from 0.9 | innocent ones | refused |"
    ]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for each in languages:
        band, alarm = each.bands[2], each.alarms[-1]
        believed = f"{band.right} of {band.count}"
        cells = (
            each.code,
            each.held_out,
            f"{each.accuracy:.1%}",
            believed,
            f"{alarm.found:.0%}",
            each.innocent,
            alarm.refused,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _cell(x: int, y: int, count: int, share: float, is_right: bool) -> str:
    fill = "#1f6f3d" if is_right else "#b5361c"
    box = f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" stroke="#ddd"'
    if not count:
        return f'{box} fill="#fff"/>'
    colour = "#fff" if share > 0.5 else "#222"
    number = f'<text x="{x + CELL / 2}" y="{y + 17}" font-size="11" text-anchor="middle" fill="{colour}">{count}</text>'
    return f'{box} fill="{fill}" fill-opacity="{max(share, 0.12):.2f}"/>{number}'


def main(arguments: Sequence[str] | None = None, built: Path = BUILT) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.confusion_matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, help="folder to write to (default: docs, and the head is kept)")
    options = parser.parse_args(arguments)
    folder: Path = options.folder or ROOT / "docs"
    try:
        found = evaluation.load(built / CLASSIFIER / build.EVALUATION)
    except FileNotFoundError as error:
        print(f"error: {error.filename} is missing: run `python -m scripts.build_engines classifier`", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures(found).items():
        (folder / name).write_text(picture, encoding="utf-8")
    found.save(folder / "classifier.json")
    if options.folder is None:
        keep_head(built / CLASSIFIER)
    print(table(found.languages))
    print(f"{found.accuracy:.1%} of {found.held_out} held-out prompts are classified correctly")
    return 0


def keep_head(folder: Path, shipped_in: Path = shipped.FOLDER) -> None:
    """Takes the head out of the built model, for the next one who builds the same."""
    record = build.read_record(folder)
    assert record is not None
    constants = {each.name: each for each in onnx.load(folder / MODEL, load_external_data=False).graph.initializer}
    weight, bias = (onnx.numpy_helper.to_array(constants[name]) for name in ("head.weight", "head.bias"))
    shipped.save(weight, bias, record.made_from, folder / build.EVALUATION, shipped_in)


if __name__ == "__main__":
    sys.exit(main())
