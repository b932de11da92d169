"""Bar charts as SVG, drawn by hand: medians as bars, the spread of all rounds as a whisker."""

from __future__ import annotations

from html import escape

from bench.results import Summary

WIDTH, LABEL, BAR, GAP, RIGHT = 860, 330, 22, 10, 110
OURS, THEIRS, INK, FAINT = "#2563eb", "#9ca3af", "#111827", "#6b7280"
THEIR_NAMES = (
    "Spark 4.2", "librdkafka", "Java", "Kafka Streams", "Flink", "Quix", "Apache", "plain", "the broker's own limit",
)  # fmt: skip


def bars(found: list[Summary], figure: str, title: str) -> str:
    """One bar per contestant that has this figure; ours are blue."""
    shown = [(each, each.figures[figure]) for each in found if figure in each.figures]
    top = max((spread.most for _, spread in shown), default=0.0) or 1.0
    scale = (WIDTH - LABEL - RIGHT) / top
    height = 40 + len(shown) * (BAR + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="18" font-weight="600" fill="{INK}">{escape(title)}</text>',
    ]
    for row, (each, spread) in enumerate(shown):
        y = 34 + row * (BAR + GAP)
        middle = y + BAR / 2
        end = LABEL + spread.median * scale
        label = escape(each.contestant)
        color = OURS if is_ours(each.contestant) else THEIRS
        least, most = LABEL + spread.least * scale, LABEL + spread.most * scale
        parts += [
            f'<text x="{LABEL - 8}" y="{middle + 4:.0f}" text-anchor="end" fill="{INK}">{label}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{max(1.0, end - LABEL):.1f}" height="{BAR}" fill="{color}"/>',
            f'<path d="M{least:.1f} {middle}H{most:.1f}M{least:.1f} {middle - 4}V{middle + 4}M{most:.1f} {middle - 4}'
            f'V{middle + 4}" stroke="{INK}" stroke-width="1"/>',
            f'<text x="{max(end, most) + 6:.0f}" y="{middle + 4:.0f}" fill="{FAINT}">{number(spread.median)}</text>',
        ]
    return "\n".join([*parts, "</svg>"])


def is_ours(contestant: str) -> bool:
    return not contestant.startswith(THEIR_NAMES)


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
