"""Draws the pictures of docs/pictures as SVG: sequence diagrams from a few lines of text each.

A line `A -> B: words` is an arrow, `A: words` a note on A's line
and `! words` a crash across all of them. The first line names the participants.
"""

from __future__ import annotations

import html
from pathlib import Path

LANE, ROW, TOP, MARGIN = 260, 34, 58, 24
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2937 }
  .name { font-weight: 600 }
  .lane { stroke: #cbd5e1; stroke-dasharray: 3 3 }
  .arrow { stroke: #2563eb; stroke-width: 1.6 }
  .box { fill: #eff6ff; stroke: #93c5fd }
  .note { fill: #fefce8; stroke: #fde047 }
  .crash { stroke: #dc2626; stroke-width: 2; stroke-dasharray: 6 4 }
  .crashword { fill: #dc2626; font-weight: 600 }
"""

PICTURES: dict[str, str] = {
    "level-none": """pipeline, output, progress
pipeline -> progress: timer fires: position 200
! crash here: 100–199 are lost
pipeline -> output: rows 100–199
! crash here, timer not yet fired: rows come twice""",
    "level-at-most-once": """pipeline, output, progress
pipeline -> progress: 1. position 200 (fenced)
! crash here: rows 100–199 are lost, never doubled
pipeline -> output: 2. rows 100–199""",
    "level-at-least-once": """pipeline, output, progress
pipeline -> output: 1. rows 100–199
! crash here: rows 100–199 come again, never lost
pipeline -> progress: 2. position 200""",
    "level-effectively-once": """pipeline, output, progress
pipeline -> output: rows 100–199 (not visible yet)
pipeline -> progress: position 200 (not visible yet)
! crash here: both vanish, the batch runs again
pipeline -> output: one commit: both visible
pipeline -> progress: or neither""",
    "idempotent-producer": """producer, broker
producer -> broker: batch, producer 7, sequences 0–9
broker -> producer: ack, offset 100
producer -> broker: batch, producer 7, sequences 10–19
broker: appended at 110
! the ack is lost
producer -> broker: the same batch again, sequences 10–19
broker: sequence 10 already appended: not again
broker -> producer: ack as a duplicate, original offset 110""",
    "transaction": """producer, coordinator, partition A, partition B
producer -> coordinator: InitProducerId (id, epoch + 1): zombies are fenced
producer -> partition A: records
producer -> partition B: records
producer -> coordinator: TxnOffsetCommit (input consumed up to …)
producer -> coordinator: EndTxn commit
coordinator: prepare commit: journaled and synced
coordinator -> partition A: commit marker
coordinator -> partition B: commit marker
coordinator: complete""",
    "shared-transaction": """driver, task 1, task 2, Kafka
driver -> Kafka: InitProducerId: fences older drivers and tasks
driver -> Kafka: OffsetFetch: read the ledger only now
driver -> task 1: producer id and epoch
driver -> task 2: producer id and epoch
task 1 -> driver: lease for output partition 0?
driver -> task 1: granted, once
task 1 -> Kafka: Produce partition 0, sequences from 0
task 2 -> Kafka: Produce partition 1, sequences from 0
task 1 -> driver: what I sent, from which map attempts
task 2 -> driver: what I sent, from which map attempts
driver: it adds up?
driver -> Kafka: TxnOffsetCommit: input's end offsets and token
driver -> Kafka: EndTxn: output and progress visible together""",
    "sql-transaction": """driver, tasks, PostgreSQL
driver -> PostgreSQL: claim: owner_epoch + 1, then read the row
tasks -> driver: rows as COPY bytes
driver -> PostgreSQL: BEGIN, COPY rows
driver -> PostgreSQL: UPDATE ledger WHERE owner_epoch = mine: one row
driver -> PostgreSQL: COMMIT
! answer lost: raise owner_epoch, read the row: it knows""",
}


def draw(text: str) -> str:
    first, *lines = text.strip().splitlines()
    names = [name.strip() for name in first.split(",")]
    x = {name: MARGIN + LANE // 2 + index * LANE for index, name in enumerate(names)}
    width, height = LANE * len(names) + 2 * MARGIN, TOP + ROW * (len(lines) + 1)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#2563eb"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for name in names:
        out.append(f'<line class="lane" x1="{x[name]}" x2="{x[name]}" y1="44" y2="{height - 10}"/>')
        out.append(f'<rect class="box" x="{x[name] - 70}" y="12" width="140" height="30" rx="6"/>')
        out.append(f'<text class="name" x="{x[name]}" y="32" text-anchor="middle">{html.escape(name)}</text>')
    for row, line in enumerate(lines):
        out.extend(_row(line.strip(), TOP + ROW * row + 22, x, width))
    return "\n".join([*out, "</svg>"]) + "\n"


def _row(line: str, y: int, x: dict[str, int], width: int) -> list[str]:
    if line.startswith("!"):
        words = html.escape(line[1:].strip())
        return [
            f'<line class="crash" x1="{MARGIN}" x2="{width - MARGIN}" y1="{y + 4}" y2="{y + 4}"/>',
            f'<text class="crashword" x="{width / 2}" y="{y - 2}" text-anchor="middle">✕ {words}</text>',
        ]
    head, _, words = line.partition(":")
    words = html.escape(words.strip())
    if "->" in head:
        source, target = (x[name.strip()] for name in head.split("->"))
        sign = 1 if target > source else -1
        middle = (source + target) / 2
        return [
            f'<line class="arrow" x1="{source}" x2="{target - 2 * sign}" y1="{y + 4}" y2="{y + 4}" '
            'marker-end="url(#head)"/>',
            f'<text x="{middle}" y="{y - 2}" text-anchor="middle">{words}</text>',
        ]
    at = x[head.strip()]
    half = max(60, len(words) * 3.5 + 10)
    at = min(max(at, half + 4), width - half - 4)
    return [
        f'<rect class="note" x="{at - half}" y="{y - 16}" width="{2 * half}" height="24" rx="4"/>',
        f'<text x="{at}" y="{y}" text-anchor="middle">{words}</text>',
    ]


def write_pictures(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in PICTURES.items():
        path = folder / f"{name}.svg"
        path.write_text(draw(text))
        written.append(path)
    return written
