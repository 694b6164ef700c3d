"""Panels of horizontal bars as SVG: what benchmarks found, to be looked at rather than read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 760, 190, 90
BAR, GAP, HEAD = 18, 6, 34  # heights
COLOURS = ("#2f6fb7", "#e08a00", "#1f6f3d", "#8a4fa3", "#8c8c8c")
INK = "#222"


@dataclass(frozen=True)
class Bar:
    """`kind` gives the colour: bars of one kind have the same in all panels of a picture."""

    label: str
    value: float
    kind: str


@dataclass(frozen=True)
class Panel:
    """Bars over one axis that begins at zero. `title` says what is shown, and its unit."""

    title: str
    bars: Sequence[Bar]


def draw(panels: Sequence[Panel]) -> str:
    """A whole SVG document, the panels below each other."""
    kinds = list(dict.fromkeys(bar.kind for panel in panels for bar in panel.bars))
    colours = {kind: COLOURS[number % len(COLOURS)] for number, kind in enumerate(kinds)}
    parts, y = [], 0
    for panel in panels:
        parts += _panel(panel, y, colours)
        y += HEAD + len(panel.bars) * (BAR + GAP) + GAP
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif">'
    return "\n".join([opening, f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _panel(panel: Panel, top: int, colours: dict[str, str]) -> list[str]:
    parts = [f'<text x="10" y="{top + 22}" font-size="14" font-weight="bold" fill="{INK}">{escape(panel.title)}</text>']
    longest = max((bar.value for bar in panel.bars), default=0) or 1
    for number, bar in enumerate(panel.bars):
        y = top + HEAD + number * (BAR + GAP)
        width = (WIDTH - LEFT - RIGHT) * bar.value / longest
        base, text = y + BAR - 5, f'font-size="12" fill="{INK}"'
        parts.append(f'<text x="{LEFT - 8}" y="{base}" text-anchor="end" {text}>{escape(bar.label)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colours[bar.kind]}"/>')
        parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{base}" {text}>{rounded(bar.value)}</text>')
    return parts


def rounded(value: float) -> str:
    """Three digits: what one run on a shared machine can tell."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
