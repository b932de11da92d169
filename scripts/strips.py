"""A partition's log as a strip of records with their offsets, and pointers into it."""

from __future__ import annotations

import html
import re

from drawing import LETTER, MARGIN, frame

CELL, HEIGHT, TOP = 74, 40, 62
KINDS = {"good": "holds", "bad": "crash", "wait": "note", "mark": "box"}


def strip(text: str) -> str:
    """Lines: title; `label/kind …`; `name@offset …`; `kind: meaning, …`; what it comes to."""
    title, cells, pointers, legend, words = (line.strip() for line in text.strip().splitlines())
    records = [cell.rsplit("/", 1) for cell in cells.split()]
    width = max(2 * MARGIN + CELL * len(records) + 40, len(words) * LETTER + 2 * MARGIN)
    out = [f'<text class="name" x="{MARGIN}" y="32">{html.escape(title)}</text>']
    for offset, (label, kind) in enumerate(records):
        left = MARGIN + CELL * offset
        middle = left + (CELL - 6) / 2
        out += [
            f'<rect class="{KINDS[kind]}" x="{left}" y="{TOP}" width="{CELL - 6}" height="{HEIGHT}" rx="5"/>',
            f'<text class="name" x="{middle:g}" y="{TOP + 25}" text-anchor="middle">{html.escape(label)}</text>',
            f'<text class="soft" x="{middle:g}" y="{TOP - 8}" text-anchor="middle">{offset}</text>',
        ]
    y = TOP + HEIGHT
    for name, offset in re.findall(r"(\S[^@]*)@(\d+)", pointers):
        x = MARGIN + CELL * int(offset) - 3
        anchor = "end" if x > width - 150 else "middle"
        out += [
            f'<line class="arrow" x1="{x}" x2="{x}" y1="{TOP - 4}" y2="{y + 18}"/>',
            f'<text class="name" x="{x}" y="{y + 34}" text-anchor="{anchor}">{html.escape(name.strip())}</text>',
        ]
    x = float(MARGIN)
    for kind, meaning in re.findall(r"(\w+): ([^,]+)", legend):
        out.append(f'<rect class="{KINDS[kind]}" x="{x:g}" y="{y + 56}" width="14" height="14" rx="3"/>')
        out.append(f'<text class="soft" x="{x + 22:g}" y="{y + 68}">{html.escape(meaning)}</text>')
        x += 22 + len(meaning) * LETTER + 26
    out.append(f'<text x="{MARGIN}" y="{y + 98}">{html.escape(words)}</text>')
    return frame(round(width), y + 116, f"{title}. {words}", out)
