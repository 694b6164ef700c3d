"""The picture of a stress test as SVG: each request as a bar over time, and how the latencies are spread."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from scripts.stress.report import Sample

WIDTH, LEFT, RIGHT, TOP, GAP = 960, 60, 20, 50, 70
BARS, CURVE = 360, 220  # heights
WAITING, STREAMING, FAILED = "#c9ced6", "#2f6fb7", "#c0392b"
INK = "#333"


def draw(samples: Sequence[Sample], title: str) -> str:
    """A whole SVG document. Times are in seconds after the start."""
    end = max((sample.ended_s for sample in samples), default=1.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{TOP + BARS + 2 * GAP + CURVE}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 22, title, size=15),
        _text(LEFT, 40, "Each request is grey until its first token, blue until its end, and red if it failed"),
        *_bars(samples, end),
        *_curves(samples, TOP + BARS + GAP),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _bars(samples: Sequence[Sample], end: float) -> list[str]:
    parts = _axis(TOP + BARS, end, "s")
    height = BARS / max(1, len(samples))
    thickness = max(0.3, height * 0.85)
    for place, sample in enumerate(sorted(samples, key=lambda each: each.due_s)):
        y = TOP + place * height
        first = sample.arrivals_s[0] if sample.arrivals_s else sample.ended_s
        spans = [(sample.due_s, first, WAITING), (first, sample.ended_s, STREAMING)]
        if sample.error:
            spans = [(sample.due_s, sample.ended_s, FAILED)]
        for begin, stop, colour in spans:
            width = max(0.5, _x(stop, end) - _x(begin, end))
            parts.append(
                f'<rect x="{_x(begin, end):.1f}" y="{y:.2f}" width="{width:.1f}" height="{thickness:.2f}" '
                f'fill="{colour}"/>'
            )
    return parts


def _curves(samples: Sequence[Sample], top: int) -> list[str]:
    """The share of the requests that were done, or had begun to answer, within so many seconds."""
    answered = [sample for sample in samples if not sample.error]
    if not answered:
        return [_text(LEFT, top + 20, "no request was answered")]
    whole = sorted(sample.latency_ms / 1000 for sample in answered)
    first = sorted(sample.first_ms / 1000 for sample in answered)
    end = whole[-1] or 1.0
    parts = _axis(top + CURVE, end, "s")
    for share in (0, 50, 90, 100):
        y = top + CURVE * (1 - share / 100)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{share}%", anchor="end"))
    for values, colour, label, at in ((first, "#e08a00", "first token", 0), (whole, STREAMING, "whole answer", 110)):
        points = [(0.0, 0.0)]
        for number, value in enumerate(values):
            points += [(value, number / len(values)), (value, (number + 1) / len(values))]
        line = " ".join(f"{_x(value, end):.1f},{top + CURVE * (1 - share):.1f}" for value, share in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(LEFT + at, top - 10, label, colour=colour))
    return parts


def _axis(y: float, end: float, unit: str) -> list[str]:
    parts = [f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="{INK}"/>']
    step = _round_step(end)
    ticks = [tick * step for tick in range(int(end / step + 1e-9) + 1)]
    return parts + [_text(_x(tick, end), y + 18, f"{tick:g} {unit}", anchor="middle") for tick in ticks]


def _round_step(end: float) -> float:
    """1, 2 or 5 times a power of ten, at least a tenth and at most a quarter of the axis."""
    power = 10.0 ** math.floor(math.log10(end / 10))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= end / 10)


def _x(seconds: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
        f"{html.escape(text)}</text>"
    )
