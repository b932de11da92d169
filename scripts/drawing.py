"""Sequence diagrams as SVG, from a few lines of text. They are readable on light and on dark backgrounds."""

from __future__ import annotations

import html

ROW, TOP, MARGIN, LETTER = 36, 62, 28, 7.2
# Inside an <img> a style sheet sees the reader's colour scheme, so one file serves both.
STYLE = """
  svg { --ink: #1f2937; --soft: #64748b; --paper: #ffffff; --lane: #cbd5e1; --line: #2563eb; --box: #eff6ff;
    --edge: #93c5fd; --note: #fefce8; --noteedge: #eab308; --bad: #dc2626; --badbox: #fef2f2; --good: #15803d;
    --goodbox: #f0fdf4 }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9aa7b4; --paper: #0d1117; --lane: #3b4552; --line: #79b0ff; --box: #12233d;
      --edge: #3569a8; --note: #2b2410; --noteedge: #a98a1b; --bad: #ff8080; --badbox: #341416; --good: #56d27d;
      --goodbox: #0f2a19 }
  }
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink) }
  .paper { fill: var(--paper) }
  .name { font-weight: 600 }
  .soft { fill: var(--soft) }
  .lane { stroke: var(--lane); stroke-dasharray: 3 4 }
  .arrow { stroke: var(--line); stroke-width: 1.6 }
  .head { fill: var(--line) }
  .words { paint-order: stroke; stroke: var(--paper); stroke-width: 5px; stroke-linejoin: round }
  .box { fill: var(--box); stroke: var(--edge) }
  .note { fill: var(--note); stroke: var(--noteedge) }
  .crash { fill: var(--badbox); stroke: var(--bad); stroke-dasharray: 5 4 }
  .crashword { fill: var(--bad); font-weight: 600 }
  .holds { fill: var(--goodbox); stroke: var(--good) }
  .holdword { fill: var(--good); font-weight: 600 }
"""


def frame(width: float, height: float, label: str, body: list[str]) -> str:
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img"',
        f'  aria-label="{html.escape(label)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(rows) + "\n"


def sequence(text: str) -> str:
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    names = [name.strip() for name in first.split(",")]
    x, width = _places(names, lines)
    height = TOP + ROW * len(lines) + 18
    out = [
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    ]
    for name in names:
        out.append(f'<line class="lane" x1="{x[name]:g}" x2="{x[name]:g}" y1="46" y2="{height - 12}"/>')
        half = max(56, len(name) * LETTER / 2 + 16)
        out.append(f'<rect class="box" x="{x[name] - half:g}" y="14" width="{2 * half:g}" height="32" rx="7"/>')
        out.append(f'<text class="name" x="{x[name]:g}" y="35" text-anchor="middle">{html.escape(name)}</text>')
    for row, line in enumerate(lines):
        out.extend(_row(line, TOP + ROW * row + 20, x, width))
    return frame(width, height, f"{', '.join(names)}: {'; '.join(lines)}", out)


def _places(names: list[str], lines: list[str]) -> tuple[dict[str, float], float]:
    """Where the lanes stand: as close as the words between them allow."""
    gaps = [170.0] * (len(names) - 1)
    for line in lines:
        head, _, words = line.partition(":")
        if "->" not in head or line[0] in "!=":
            continue
        one, other = sorted(names.index(name.strip()) for name in head.split("->"))
        needed = len(words.strip()) * LETTER + 34
        missing = needed - sum(gaps[one:other])
        for gap in range(one, other):
            gaps[gap] += max(0.0, missing) / (other - one)
    left = MARGIN + max(62.0, *(len(n) * LETTER / 2 + 18 for n in names))
    x = {name: round(left + sum(gaps[:index])) for index, name in enumerate(names)}
    width = x[names[-1]] + left
    for line in lines:
        if line[0] in "!=":
            width = max(width, len(line) * (LETTER + 0.4) + 2 * MARGIN + 24)
    return {name: float(place) for name, place in x.items()}, round(width)


def _row(line: str, y: int, x: dict[str, float], width: float) -> list[str]:
    if line[0] in "!=":
        sign, box, word = ("✕", "crash", "crashword") if line[0] == "!" else ("✓", "holds", "holdword")
        return [
            f'<rect class="{box}" x="{MARGIN}" y="{y - 14}" width="{width - 2 * MARGIN:g}" height="26" rx="6"/>',
            f'<text class="{word}" x="{width / 2:g}" y="{y + 4}" text-anchor="middle">'
            f"{sign} {html.escape(line[1:].strip())}</text>",
        ]
    head, _, words = line.partition(":")
    shown = html.escape(words.strip())
    if "->" in head:
        source, target = (x[name.strip()] for name in head.split("->"))
        sign = 1 if target > source else -1
        return [
            f'<line class="arrow" x1="{source:g}" x2="{target - 2 * sign:g}" y1="{y + 6}" y2="{y + 6}" '
            'marker-end="url(#head)"/>',
            f'<text class="words" x="{(source + target) / 2:g}" y="{y}" text-anchor="middle">{shown}</text>',
        ]
    half = max(56.0, len(words.strip()) * LETTER / 2 + 12)
    at = min(max(x[head.strip()], half + 8), width - half - 8)
    return [
        f'<rect class="note" x="{at - half:g}" y="{y - 14}" width="{2 * half:g}" height="26" rx="5"/>',
        f'<text x="{at:g}" y="{y + 4}" text-anchor="middle">{shown}</text>',
    ]
