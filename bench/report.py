"""A finished benchmark as a table, as JSON and as an HTML page."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from atonce.drawing import page, table
from atonce.local.servers.pins import KAFKA_VERSION
from bench.chart import bars, number
from bench.results import NOISY_SHARE, Run, Summary, summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    bench: str
    parameters: dict[str, Any]
    runs: list[Run]
    notes: list[str] = field(default_factory=list)
    drawings: list[str] = field(default_factory=list)
    """SVG of this benchmark's own, before the bars that every one has."""
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def summaries(self) -> list[Summary]:
        return summaries(self.runs)

    def figures(self) -> list[str]:
        return list(dict.fromkeys(key for each in self.summaries for key in each.figures))

    def rows(self) -> list[list[str]]:
        """Contestant, then median (least to most) per figure, then what others used meanwhile."""
        found = []
        for each in self.summaries:
            row = [each.contestant]
            for key in self.figures():
                spread = each.figures.get(key)
                row.append("" if spread is None else _spread(spread.median, spread.least, spread.most))
            row.append(f"{each.others:.0%}{' noisy' if each.noisy else ''}" if each.rounds else "no result")
            found.append(row)
        return found

    def columns(self) -> list[str]:
        return ["contestant", *self.figures(), "others"]

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "date": self.date,
            "command": " ".join(["python -m bench", *sys.argv[1:]]),
            "machine": machine(),
            "versions": versions(),
            "parameters": self.parameters,
            "noisy above": NOISY_SHARE,
            "notes": self.notes,
            "summary": [dataclasses.asdict(each) for each in self.summaries],
            "runs": [dataclasses.asdict(each) for each in self.runs],
        }

    def html(self) -> str:
        facts = {**machine(), **versions(), **{key: str(value) for key, value in self.parameters.items()}}
        drawn = [*self.drawings, *(bars(self.summaries, key, key) for key in self.figures()[:4])]
        charts = "".join(f"<p>{drawing}</p>" for drawing in drawn)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        listed = ", ".join(f"{escape(key)} {escape(str(value))}" for key, value in facts.items())
        title = f"python -m bench {self.bench}"
        return page(
            title,
            f"<h1>{escape(title)}</h1><p>{escape(self.date)}</p>{charts}{table(self.columns(), self.rows())}{notes}"
            f"<p>Medians (least to most). Others: the share of the machine that neither contestant nor broker used "
            f"during the run; above {NOISY_SHARE:.0%} it is called noisy.</p><p>{listed}</p>",
        )

    def write(self, json_file: Path | None, html_file: Path | None) -> None:
        if json_file:
            json_file.write_text(json.dumps(self.as_json(), indent=2, ensure_ascii=False) + "\n")
        if html_file:
            html_file.write_text(self.html())


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {"cores": os.cpu_count(), "memory GiB": round(memory), "system": platform.platform(terse=True)}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "Apache Kafka": KAFKA_VERSION}
    for package in ("atonce", "pyspark", "confluent-kafka", "pyarrow", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = _commit()
    return {**found, "commit": commit} if commit else found


def _commit() -> str:
    try:
        here = Path(__file__).parent
        answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _spread(median: float, least: float, most: float) -> str:
    middle = number(median)
    return middle if least == most else f"{middle} ({number(least)}–{number(most)})"


def note_ratios(found: Sequence[Summary], figure: str, base: str) -> list[str]:
    """How many times the figure of `base` each other contestant reaches."""
    rates = {each.contestant: each.figures[figure].median for each in found if figure in each.figures}
    name = next((key for key in rates if key.startswith(base)), None)
    if name is None or not rates[name]:
        return []
    return [f"{key}: {value / rates[name]:.2f} × {name}" for key, value in rates.items() if key != name]
