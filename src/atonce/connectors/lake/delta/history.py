"""Every file that the log of a Delta table still names, added or removed: removed ones are read by time travel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq


def named(path: Path) -> Iterator[str]:
    log = path / "_delta_log"
    for entry in sorted(log.glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            for kind in ("add", "remove"):
                if kind in action:
                    yield unquote(action[kind]["path"])
    for checkpoint in sorted(log.glob("*.parquet")):
        for row in pq.read_table(checkpoint, columns=["add.path", "remove.path"]).to_pylist():
            for found in (row.get("add"), row.get("remove")):
                if found and found["path"]:
                    yield unquote(found["path"])
