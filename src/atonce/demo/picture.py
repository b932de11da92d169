"""The demo's result as a picture (SVG) and as a page that stands on its own (HTML)."""

from __future__ import annotations

import html
from collections.abc import Sequence

from atonce.demo.scenario import KILLS, WHY, Result
from atonce.guarantee import BOUNDARY

_WIDTH, _ROW, _LEFT, _BAR = 860, 64, 190, 430


def svg(results: Sequence[Result]) -> str:
    """A bar per level: delivered once, lost, delivered again. The grey line is what was sent."""
    most = max([result.sent + result.duplicated for result in results], default=1)
    scale = _BAR / most
    height = 74 + _ROW * len(results)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">',
        "<style>text { font: 14px system-ui, sans-serif; fill: #1f2937 } .b { font-weight: 600 } .s { font-size: 12px; "
        "fill: #64748b } .ok { fill: #16a34a } .lost { fill: #f1f5f9; stroke: #dc2626; stroke-dasharray: 4 3 } "
        ".twice { fill: #f59e0b } .once { fill: #2563eb }</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for index, result in enumerate(results):
        out.extend(_bar(result, 20 + _ROW * index, scale))
    y = 20 + _ROW * len(results) + 14
    for x, kind, words in (
        (_LEFT, "once", "delivered"),
        (_LEFT + 120, "lost", "lost"),
        (_LEFT + 200, "twice", "again"),
    ):
        out.append(f'<rect class="{kind}" x="{x}" y="{y}" width="14" height="14" rx="2"/>')
        out.append(f'<text class="s" x="{x + 20}" y="{y + 12}">{words}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _bar(result: Result, y: int, scale: float) -> list[str]:
    once = (result.sent - result.lost) * scale
    lost, twice = result.lost * scale, result.duplicated * scale
    words = [f"{result.lost:,} lost"] if result.lost else []
    words += [f"{result.duplicated:,} twice"] if result.duplicated else []
    x = _LEFT + once
    parts = [
        f'<text class="b" x="16" y="{y + 24}">{result.guarantee.value}</text>',
        f'<rect class="once" x="{_LEFT}" y="{y + 6}" width="{once:.1f}" height="26" rx="3"/>',
    ]
    if lost:
        parts.append(f'<rect class="lost" x="{x:.1f}" y="{y + 6}" width="{lost:.1f}" height="26" rx="3"/>')
        x += lost
    if twice:
        parts.append(f'<rect class="twice" x="{x:.1f}" y="{y + 6}" width="{twice:.1f}" height="26" rx="3"/>')
        x += twice
    note = " · ".join(words) or "every record, once"
    kind = "b ok" if not words else "b"
    parts.append(f'<text class="{kind}" x="{x + 10:.1f}" y="{y + 24}">{note}</text>')
    parts.append(f'<text class="s" x="{_LEFT}" y="{y + 48}">{html.escape(WHY[result.guarantee])}</text>')
    return parts


def page(results: Sequence[Result]) -> str:
    rows = "".join(
        f"<tr><td>{r.guarantee.value}</td><td>{r.sent:,}</td><td>{r.delivered:,}</td><td>{r.lost:,}</td>"
        f"<td>{r.duplicated:,}</td><td>{r.seconds:.0f} s</td></tr>"
        for r in results
    )
    kills = "".join(
        f"<li><b>{r.guarantee.value}</b>: "
        + html.escape("; then ".join(f"killed while {kill.words}" for kill in KILLS[r.guarantee]))
        + "</li>"
        for r in results
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>AtOnce: four levels, killed and recovered</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem; color: #1f2937 }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ padding: .35rem .9rem; border-bottom: 1px solid #e2e8f0 }}
td:not(:first-child), th:not(:first-child) {{ text-align: right }} svg {{ max-width: 100%; height: auto }}
</style>
<h1>The same pipeline, four levels, killed and recovered</h1>
<p>Each ran in a process of its own, was SIGKILLed twice between its two writes, and was started again to finish.</p>
{svg(results)}
<table><tr><th>level</th><th>sent</th><th>delivered</th><th>lost</th><th>duplicated</th><th>took</th></tr>{rows}</table>
<h2>Where it was killed</h2><ul>{kills}</ul>
<p><small>{html.escape(BOUNDARY)}</small></p>
</html>
"""
