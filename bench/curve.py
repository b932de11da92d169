"""Line charts: medians as lines over a logarithmic axis, the spread of all rounds as whiskers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from atonce.drawing import svg, tag, text
from bench.chart import number
from bench.results import Spread

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 300, 90, 150, 40, 48
COLORS = ("#2563eb", "#d97706", "#059669", "#9ca3af")
Line = Sequence[tuple[float, Spread]]


def curve(lines: Mapping[str, Line], title: str, below: str) -> str:
    """One line per name, through (x, spread); `below` says what x is."""
    xs = sorted({x for line in lines.values() for x, _ in line})
    top = max((spread.most for line in lines.values() for _, spread in line), default=0.0) or 1.0
    low, high = (math.log(xs[0]), math.log(xs[-1])) if xs else (0.0, 1.0)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x: float) -> float:
        return LEFT + (right - LEFT) * ((math.log(x) - low) / (high - low) if high > low else 0.5)

    def up(y: float) -> float:
        return bottom - (bottom - TOP) * y / top

    parts = [
        text(0, 18, title, "name"),
        tag("path", class_="axis", d=f"M{LEFT} {TOP}V{bottom}H{right}"),
        _tick((LEFT + right) / 2, HEIGHT - 8, "middle", below),
        *(_tick(LEFT - 8, up(top * part) + 4, "end", number(top * part)) for part in (0.0, 0.5, 1.0)),
        *(_tick(across(x), bottom + 18, "middle", number(x)) for x in xs),
    ]
    for index, (name, line) in enumerate(lines.items()):
        color = COLORS[index % len(COLORS)]
        aside = (index - (len(lines) - 1) / 2) * 4  # whiskers of several lines stand beside each other
        points = " ".join(f"{across(x):.1f},{up(spread.median):.1f}" for x, spread in line)
        whiskers = "".join(
            f"M{across(x) + aside:.1f} {up(spread.least):.1f}V{up(spread.most):.1f}" for x, spread in line
        )
        y = TOP + 12 + index * 20
        parts += [
            tag("polyline", points=points, fill="none", stroke=color, stroke_width=2),
            tag("path", d=whiskers, stroke=color, stroke_width=1.5, opacity="0.6"),
            tag("path", d=f"M{right + 10} {y - 4}h16", stroke=color, stroke_width=2),
            text(right + 30, y, name),
        ]
    return svg(WIDTH, HEIGHT, title, parts)


def _tick(x: float, y: float, anchor: str, words: str) -> str:
    return text(x, y, words, "soft", text_anchor=anchor)
