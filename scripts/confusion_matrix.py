"""Draws how well the text classifier tells its classes apart: docs/classifier.svg, and docs/classifier.json.

    python -m scripts.confusion_matrix
    python -m scripts.confusion_matrix --folder /tmp

Rows are what held-out prompts are, columns what they were taken for. It shows what `scripts.build_engines classifier`
found last; build again after an example was edited.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bls.paths import ROOT
from engines.classifier import build, evaluation
from engines.classifier.evaluation import Evaluation
from engines.classifier.labels import RISKS
from engines.classifier.manifest import CLASSIFIER
from scripts.build_engines import BUILT

CELL, MARGIN = 26, 130


def svg(found: Evaluation) -> str:
    """The matrix as a picture; the darker a cell, the larger its share of the row. Risks are red."""
    size = MARGIN + CELL * len(found.labels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 10} {size + 34}" font-family="sans-serif">',
        f'<rect width="{size + 10}" height="{size + 34}" fill="#fff"/>',
    ]
    for row, label in enumerate(found.labels):
        middle = MARGIN + CELL * row + CELL / 2
        colour = "#a00" if label in RISKS else "#222"
        text = f'font-size="11" fill="{colour}">{escape(label)}</text>'
        parts.append(f'<text x="{MARGIN - 6}" y="{middle + 4}" text-anchor="end" {text}')
        turned = f'transform="translate({middle + 4} {MARGIN - 6}) rotate(-60)"'
        parts.append(f"<text {turned} {text}")
        total = sum(found.confusion[row]) or 1
        for column, count in enumerate(found.confusion[row]):
            parts.append(_cell(MARGIN + CELL * column, MARGIN + CELL * row, count, count / total, row == column))
    caption = (
        f"{found.accuracy:.1%} of {found.held_out} held-out prompts classified correctly; fitted to "
        f"{found.fitted} others"
    )
    parts.append(f'<text x="{MARGIN}" y="{size + 22}" font-size="12" fill="#222">{caption}</text></svg>')
    return "\n".join(parts) + "\n"


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
    parser.add_argument("--folder", type=Path, default=ROOT / "docs", help="folder to write to (default: docs)")
    options = parser.parse_args(arguments)
    try:
        found = evaluation.load(built / CLASSIFIER / build.EVALUATION)
    except FileNotFoundError as error:
        print(f"error: {error.filename} is missing: run `python -m scripts.build_engines classifier`", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "classifier.svg").write_text(svg(found), encoding="utf-8")
    found.save(options.folder / "classifier.json")
    print(f"{found.accuracy:.1%} of {found.held_out} held-out prompts are classified correctly")
    for each in found.alarms:
        print(f"from score {each.score} on: {each.found:.1%} of the risks are found, {each.false:.1%} false alarms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
