"""Writes the figures of docs/simulation.md from what a run of the simulation left: `odometer.py FILE.jsonl…`.

Each line of such a file is what one run of `python -m tests.simulation.pipeline --out FILE` did; runs with a planted
error are the mutants' table, all others are added up.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs/simulation.md"
BEGIN, END = "<!-- the odometer: written by scripts/odometer.py -->", "<!-- the end of the odometer -->"


def totals(runs: list[dict[str, Any]]) -> list[str]:
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for run in runs:
        total.update({key: run[key] for key in ("seeds", "batches", "requests", "hours", "seconds", "cpu_seconds")})
        total.update(failed=len(run["failed"]), refused=run["refused"])
        faults.update(run["faults"])
    each = total["batches"] / total["cpu_seconds"]
    lines = [
        "| | |",
        "|---|---|",
        f"| seeds | {total['seeds']:,} |",
        f"| simulated batches | {total['batches']:,} |",
        f"| simulated hours | {total['hours']:,.0f} |",
        f"| requests to brokers | {total['requests']:,} |",
        f"| faults | {sum(faults.values()):,} |",
        f"| seeds in which a pipeline refused, with a reason | {total['refused']:,} |",
        f"| seeds with an anomaly | {total['failed']:,} |",
        f"| processor time | {total['cpu_seconds'] / 60:,.1f} minutes, {each:,.0f} batches a second of one core |",
        "",
        "| fault | times |",
        "|---|---|",
    ]
    return [*lines, *(f"| {name} | {count:,} |" for name, count in sorted(faults.items()))]


def planted(runs: list[dict[str, Any]], holes: dict[str, str]) -> list[str]:
    caught = [run for run in runs if run["failed"]]
    lines = [
        f"{len(caught)} of {len(runs)} planted errors were caught; the others were given up after the batches that "
        "stand there.",
        "",
        "| planted error | what is open again | batches | by |",
        "|---|---|---|---|",
    ]
    for run in runs:
        by = run["failed"][0].partition(": ")[2].partition(":")[0] if run["failed"] else "not caught"
        name = run["mutant"]
        lines.append(f"| {name} | {holes.get(name, '')} | {run['batches']:,} | {by} |")
    return lines


def main(files: list[str]) -> None:
    runs = [json.loads(line) for file in files for line in Path(file).read_text().splitlines() if line.strip()]
    plain = [run for run in runs if not run["mutant"]]
    mutants = list({run["mutant"]: run for run in runs if run["mutant"]}.values())
    holes = {run["mutant"]: run["hole"] for run in mutants}
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    body = "\n".join([*(totals(plain) if plain else []), "", *(planted(mutants, holes) if mutants else [])])
    PAGE.write_text(f"{before}{BEGIN}\n\n{body.strip()}\n\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
