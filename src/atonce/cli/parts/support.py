"""What was tested on which Kafka, Spark and checkpoint store: results of tests, written by scripts/support.py."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("support.json")
LEVELS = ("none", "at-most-once", "at-least-once", "effectively-once")
_EVERY_LEVEL = "test_without_a_fault_every_level_delivers_each_row_once"
# Table → feature → how the names of its tests begin.
FEATURES: dict[str, dict[str, tuple[str, ...]]] = {
    "kafka": {
        "each row once, at all four levels": (_EVERY_LEVEL,),
        "crash between the two writes": ("test_crash_", "test_a_crash_between_the_two_writes"),
        "older instance fenced": ("test_older_instance_is_fenced",),
    },
    "spark": {
        "pipelines, four levels": ("test_each_level_delivers",),
        "`--available-now`": ("test_a_drain_ends",),
        "Python functions": ("test_functions_in_python",),
        "state": ("test_state_is_kept",),
        "tables, files": ("test_a_table_is_a_source", "test_files_are_drained"),
        "killed driver": ("test_a_driver_killed",),
        "`deliver`": ("test_deliver_works",),
    },
    "checkpoint": {
        "killed at each step": ("test_driver_killed_at_each_step",),
        "two drivers at once": ("test_second_driver_goes_on",),
    },
}
ROWS = {
    "kafka": {
        "kafka": "embedded broker, protocol 2",
        "kafka-protocol-1": "embedded broker, `transaction.version` 1, protocol 1",
        "kafka-3.9": "Apache Kafka 3.9.2, protocol 1",
        "kafka-3.9-unverified": "Apache Kafka 3.9.2 without verification, `unverified_transactions: allow`",
        "kafka-4.3-v1": "Apache Kafka 4.3.1, `transaction.version` 1, protocol 1",
    },
    "checkpoint": {"s3": "S3 (versitygw 1.8.0, `s3a://`)", "hdfs": "HDFS 3.5.0 (`hdfs://`)"},
}
_WORDS = {"kafka": "Kafka as a sink", "spark": "Spark", "checkpoint": "Checkpoints elsewhere than on a local disk"}
_HEAD = """\
# What was tested

Made by `scripts/support.py` from results of tests; nothing here is written by hand. A number is how many tests passed;
“–”: the feature is not there, its tests were left out; empty: not run. Everything else in `tests/` runs on Spark 4.3
with the embedded broker and Apache Kafka 4.3.1.
"""


def results() -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(RESULTS.read_text())
    return found


def outcome(tags: Collection[str]) -> str:
    """Of one test, by what stands in its element of a JUnit file."""
    if "failure" in tags or "error" in tags:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def cell(counted: dict[str, int] | None) -> str:
    if counted is None:
        return ""
    if counted["failed"]:
        return f"**{counted['failed']} failed**"
    return str(counted["passed"]) if counted["passed"] else "–"


def page() -> str:
    parts = [_HEAD]
    for table, features in FEATURES.items():
        rows = results().get(table, {})
        parts.append(f"## {_WORDS[table]}\n")
        parts.append(f"| | {' | '.join(features)} | Python |")
        parts.append(f"|---|{'---|' * len(features)}---|")
        for row in sorted(rows):
            cells = [cell(rows[row].get(feature)) for feature in features]
            parts.append(f"| {ROWS.get(table, {}).get(row, row)} | {' | '.join(cells)} | {rows[row]['python']} |")
        parts.append("")
    return "\n".join(parts)


def spark_row(version: str) -> str | None:
    """What of this Spark was tested, in words; None where nothing was."""
    rows = results().get("spark", {})
    line = ".".join(version.split(".")[:2])
    found = [row for row in sorted(rows) if row.startswith(f"{line}.") and row.replace(".", "").isdigit()]
    if not found:
        return None
    row = rows[found[-1]]
    said = {feature: cell(row.get(feature)) for feature in FEATURES["spark"]}
    works = [feature for feature, words in said.items() if words.isdigit()]
    return f"tested on {found[-1]}: {', '.join(works).replace('`', '')}"
