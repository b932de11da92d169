"""Sequence diagrams, from a few lines of text."""

from __future__ import annotations

from atonce.drawing import line as stroke
from atonce.drawing import rect, svg, text

ROW, TOP, MARGIN, LETTER = 36, 62, 28, 7.2
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)


def sequence(described: str) -> str:
    first, *lines = [line.strip() for line in described.strip().splitlines()]
    names = [name.strip() for name in first.split(",")]
    x, width = _lanes(names, lines)
    height = TOP + ROW * len(lines) + 18
    out = [HEAD]
    for name in names:
        half = max(56, len(name) * LETTER / 2 + 16)
        out += [
            stroke(x[name], 46, x[name], height - 12, "lane"),
            rect(x[name] - half, 14, 2 * half, 32, "box", rx=7),
            text(x[name], 35, name, "name", text_anchor="middle"),
        ]
    for row, line in enumerate(lines):
        out.extend(_row(line, TOP + ROW * row + 20, x, width))
    return svg(width, height, f"{', '.join(names)}: {'; '.join(lines)}", out)


def _lanes(names: list[str], lines: list[str]) -> tuple[dict[str, float], float]:
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
    x = {name: float(round(left + sum(gaps[:index]))) for index, name in enumerate(names)}
    wide = [len(line) * (LETTER + 0.4) + 2 * MARGIN + 24 for line in lines if line[0] in "!="]
    return x, round(max([x[names[-1]] + left, *wide]))


def _row(line: str, y: int, x: dict[str, float], width: float) -> list[str]:
    if line[0] in "!=":
        sign, box, word = ("✕", "crash", "bad") if line[0] == "!" else ("✓", "holds", "good")
        return [
            rect(MARGIN, y - 14, width - 2 * MARGIN, 26, box, rx=6),
            text(width / 2, y + 4, f"{sign} {line[1:].strip()}", word, text_anchor="middle"),
        ]
    head, _, words = (part.strip() for part in line.partition(":"))
    if "->" in head:
        source, target = (x[name.strip()] for name in head.split("->"))
        sign = 1 if target > source else -1
        return [
            stroke(source, y + 6, target - 2 * sign, y + 6, "arrow", marker_end="url(#head)"),
            text((source + target) / 2, y, words, "words", text_anchor="middle"),
        ]
    half = max(56.0, len(words) * LETTER / 2 + 12)
    at = min(max(x[head], half + 8), width - half - 8)
    return [rect(at - half, y - 14, 2 * half, 26, "note", rx=5), text(at, y + 4, words, text_anchor="middle")]
