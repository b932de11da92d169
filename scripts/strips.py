"""A partition's log as a strip of records with their offsets, and pointers into it."""

from __future__ import annotations

import re

from sequences import LETTER, MARGIN

from atonce.drawing import legend, line, rect, svg, text

CELL, HEIGHT, TOP = 74, 40, 62
KINDS = {"good": "holds", "bad": "crash", "wait": "note", "mark": "box"}


def strip(described: str) -> str:
    """Lines: title; `label/kind …`; `name@offset …`; `kind: meaning, …`; what it comes to."""
    title, cells, pointers, meanings, words = (line.strip() for line in described.strip().splitlines())
    records = [cell.rsplit("/", 1) for cell in cells.split()]
    width = max(2 * MARGIN + CELL * len(records) + 40, len(words) * LETTER + 2 * MARGIN)
    out = [text(MARGIN, 32, title, "name")]
    for offset, (label, kind) in enumerate(records):
        left = MARGIN + CELL * offset
        middle = left + (CELL - 6) / 2
        out += [
            rect(left, TOP, CELL - 6, HEIGHT, KINDS[kind], rx=5),
            text(middle, TOP + 25, label, "name", text_anchor="middle"),
            text(middle, TOP - 8, str(offset), "soft", text_anchor="middle"),
        ]
    y = TOP + HEIGHT
    for name, offset in re.findall(r"(\S[^@]*)@(\d+)", pointers):
        x = MARGIN + CELL * int(offset) - 3
        anchor = "end" if x > width - 150 else "middle"
        out += [line(x, TOP - 4, x, y + 18, "arrow"), text(x, y + 34, name.strip(), "name", text_anchor=anchor)]
    kinds = [(KINDS[kind], meaning) for kind, meaning in re.findall(r"(\w+): ([^,]+)", meanings)]
    out += [*legend(MARGIN, y + 56, kinds), text(MARGIN, y + 98, words)]
    return svg(round(width), y + 116, f"{title}. {words}", out)
