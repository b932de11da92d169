"""The demo's result as a picture (SVG) and as a page that stands on its own (HTML), for light and dark screens."""

from __future__ import annotations

import html
from collections.abc import Sequence

from atonce.demo.scenario import KILLS, WHY, Result
from atonce.guarantee import BOUNDARY

_WIDTH, _ROW, _TOP, _LEFT, _BAR = 880, 66, 62, 176, 470
_COLOURS = """--ink: #1f2937; --soft: #5b6776; --paper: #ffffff; --rule: #e2e8f0; --once: #2563eb; --oncetext: #ffffff;
    --twice: #f59e0b; --twicetext: #422006; --lost: #dc2626; --lostbox: #fef2f2; --good: #15803d"""
_DARK = """--ink: #e6edf3; --soft: #9aa7b4; --paper: #0d1117; --rule: #30363d; --once: #3b82f6; --oncetext: #ffffff;
    --twice: #d9920b; --twicetext: #1c1004; --lost: #ff8080; --lostbox: #2d1214; --good: #56d27d"""
# Inside an <img> a style sheet sees the reader's colour scheme, so one file serves both.
_SVG_STYLE = f"""
  svg {{ {_COLOURS} }}
  @media (prefers-color-scheme: dark) {{ svg {{ {_DARK} }} }}
  text {{ font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink) }}
  .paper {{ fill: var(--paper) }} .b {{ font-weight: 600 }} .s {{ font-size: 12.5px; fill: var(--soft) }}
  .once {{ fill: var(--once) }} .twice {{ fill: var(--twice) }}
  .lost {{ fill: var(--lostbox); stroke: var(--lost); stroke-width: 1.4; stroke-dasharray: 4 3 }}
  .in {{ font-size: 12.5px; font-weight: 600; text-anchor: middle }}
  .in.once {{ fill: var(--oncetext) }} .in.twice {{ fill: var(--twicetext) }}
  .in.lost {{ fill: var(--lost); stroke: none }}
  .good {{ fill: var(--good); font-weight: 600 }} .bad {{ fill: var(--lost); font-weight: 600 }}
  .sent {{ stroke: var(--soft); stroke-dasharray: 2 3 }}
"""


def svg(results: Sequence[Result]) -> str:
    """A bar per level: delivered once, lost, delivered again. The dotted line is what was sent."""
    sent = max([result.sent for result in results], default=1)
    scale = _BAR / max([result.sent + result.duplicated for result in results], default=1)
    kills = {1: "once", 2: "twice"}.get(results[0].kills, f"{results[0].kills} times") if results else ""
    height = _TOP + _ROW * len(results) + 40
    end = _LEFT + sent * scale
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">',
        f"<style>{_SVG_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}" rx="8"/>',
        f'<text class="b" x="16" y="30">{sent:,} orders through the same pipeline, SIGKILLed {kills} between its two '
        "writes and started again</text>",
        f'<text class="s" x="{end:.1f}" y="{_TOP - 12}" text-anchor="middle">sent</text>',
    ]
    for index, result in enumerate(results):
        y = _TOP + _ROW * index
        out.append(f'<line class="sent" x1="{end:.1f}" x2="{end:.1f}" y1="{y - 8}" y2="{y + 34}"/>')
        out.extend(_bar(result, y, scale))
    x = float(_LEFT)
    for kind, words in (("once", "delivered"), ("lost", "lost"), ("twice", "delivered again")):
        out.append(f'<rect class="{kind}" x="{x:g}" y="{height - 30}" width="14" height="14" rx="3"/>')
        out.append(f'<text class="s" x="{x + 21:g}" y="{height - 18}">{words}</text>')
        x += 48 + 7 * len(words)
    return "\n".join([*out, "</svg>"]) + "\n"


def _bar(result: Result, y: int, scale: float) -> list[str]:
    parts = [f'<text class="b" x="16" y="{y + 19}">{result.guarantee.value}</text>']
    x = float(_LEFT)
    for kind, count in (("once", result.sent - result.lost), ("lost", result.lost), ("twice", result.duplicated)):
        width = count * scale
        if count:
            parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="28" rx="4"/>')
        if width > 12 * len(f"{count:,}"):
            parts.append(f'<text class="in {kind}" x="{x + width / 2:.1f}" y="{y + 19}">{count:,}</text>')
        x += width
    words = [f"{result.lost:,} lost"] if result.lost else []
    words += [f"{result.duplicated:,} twice"] if result.duplicated else []
    note, kind = (" · ".join(words), "bad") if words else ("✓ every record, once", "good")
    parts.append(f'<text class="{kind}" x="{x + 12:.1f}" y="{y + 19}">{note}</text>')
    parts.append(f'<text class="s" x="{_LEFT}" y="{y + 46}">{html.escape(WHY[result.guarantee])}</text>')
    return parts


def page(results: Sequence[Result]) -> str:
    rows = "".join(
        f"<tr><td>{r.guarantee.value}</td><td>{r.sent:,}</td><td>{r.delivered:,}</td>{_count(r.lost)}"
        f"{_count(r.duplicated)}<td>{r.seconds:.0f} s</td></tr>"
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
:root {{ color-scheme: light dark; {_COLOURS} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper) }}
table {{ border-collapse: collapse; margin: 1.2rem 0 }}
td, th {{ padding: .4rem .9rem; border-bottom: 1px solid var(--rule) }}
td, th {{ text-align: left }}
td:not(:first-child), th:not(:first-child) {{ text-align: right; font-variant-numeric: tabular-nums }}
td.bad {{ color: var(--lost); font-weight: 600 }} td.good {{ color: var(--good) }}
small {{ color: var(--soft) }} svg {{ max-width: 100%; height: auto }}
</style>
<h1>The same pipeline, four levels, killed and recovered</h1>
<p>Each level ran in a process of its own, was SIGKILLed twice between its two writes, and was started again to
finish. Then the table it had written was counted.</p>
{svg(results)}
<table><tr><th>level</th><th>sent</th><th>delivered</th><th>lost</th><th>duplicated</th><th>took</th></tr>{rows}</table>
<h2>Where it was killed</h2><ul>{kills}</ul>
<h2>Where the promise ends</h2><p><small>{html.escape(BOUNDARY)}</small></p>
</html>
"""


def _count(number: int) -> str:
    return f'<td class="{"bad" if number else "good"}">{number:,}</td>'
