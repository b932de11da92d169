"""Bar charts: medians as bars, the spread of all rounds as a whisker."""

from __future__ import annotations

from atonce.drawing import rect, svg, tag, text
from bench.results import Summary

WIDTH, LABEL, BAR, GAP, RIGHT = 860, 330, 22, 10, 110
THEIR_NAMES = (
    "Spark 4.2", "librdkafka", "Java", "Kafka Streams", "Flink", "Quix", "Apache", "plain", "the broker's own limit",
)  # fmt: skip


def bars(found: list[Summary], figure: str, title: str) -> str:
    """One bar per contestant that has this figure; ours are blue."""
    shown = [(each, each.figures[figure]) for each in found if figure in each.figures]
    top = max((spread.most for _, spread in shown), default=0.0) or 1.0
    scale = (WIDTH - LABEL - RIGHT) / top
    parts = [text(0, 18, title, "name")]
    for row, (each, spread) in enumerate(shown):
        y = 34 + row * (BAR + GAP)
        middle = y + BAR // 2
        least, median, most = (LABEL + at * scale for at in (spread.least, spread.median, spread.most))
        ends = "".join(f"M{at:.1f} {middle - 4}V{middle + 4}" for at in (least, most))
        parts += [
            text(LABEL - 8, middle + 4, each.contestant, text_anchor="end"),
            rect(LABEL, y, max(1.0, median - LABEL), BAR, "bar" if is_ours(each.contestant) else "theirs"),
            tag("path", class_="whisker", d=f"M{least:.1f} {middle}H{most:.1f}{ends}"),
            text(max(median, most) + 6, middle + 4, number(spread.median), "soft"),
        ]
    return svg(WIDTH, 40 + len(shown) * (BAR + GAP), title, parts)


def is_ours(contestant: str) -> bool:
    return not contestant.startswith(THEIR_NAMES)


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
