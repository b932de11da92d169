"""Mutants that an input of a hundred plain records cannot show: what the default run's own input is made for.

Each is a change of the package's text, in a copy of it that the subject's processes import instead: Spark's planner and
its Python workers are processes of their own.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import atonce

PACKAGE = Path(atonce.__file__).parent


@dataclass(frozen=True)
class Mutant:
    file: str
    before: str
    after: str


MUTANTS: dict[str, Mutant] = {
    "large-batch-loses-its-last-row": Mutant(
        "connectors/kafka/write/blobs.py",
        "        given, rows = rows, as_records(rows)\n",
        "        given, rows = rows, as_records(rows)\n"
        "        rows = rows.slice(0, rows.num_rows - (rows.num_rows > 2000))\n",
    ),
    "null-values-become-empty": Mutant(
        "connectors/kafka/write/blobs.py",
        "            columns.append(column if pa.types.is_binary(column.type) else column.cast(pa.binary()))\n",
        "            columns.append(pc.fill_null(column.cast(pa.binary()), b'') if name == 'value' else column)\n",
    ),
    "headers-are-dropped": Mutant(
        "connectors/kafka/write/blobs.py",
        '    for name in ("headers", "topic", "partition"):\n',
        '    for name in ("topic", "partition"):\n',
    ),
    "aborted-input-is-delivered": Mutant(
        "client/read/fetch.py",
        "end=wanted.end, aborted=aborts, headers",
        "end=wanted.end, aborted=[], headers",
    ),
    "new-partitions-begin-at-their-latest-offset": Mutant(
        "connectors/kafka/read/watch.py",
        "begins = listed(cluster, dict.fromkeys(fresh, EARLIEST)",
        "begins = listed(cluster, dict.fromkeys(fresh, LATEST)",
    ),
}


def launcher(name: str, folder: Path) -> tuple[str, ...]:
    """What starts the subject with this mutant in it."""
    copy = folder / "atonce"
    shutil.copytree(PACKAGE, copy)
    mutant = MUTANTS[name]
    file = copy / mutant.file
    text = file.read_text()
    assert text.count(mutant.before) == 1, f"{name}: {mutant.file} has changed"
    file.write_text(text.replace(mutant.before, mutant.after))
    return ("env", f"PYTHONPATH={folder}", sys.executable, "-m", "atonce.verify.subject.worker")
