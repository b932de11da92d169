"""torn-txn at a table: what a reader saw at one moment must be whole batches, never a part of one (S18)."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from atonce.verify.audit.table_watch import Snapshot
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.ground.workload import Workload
from atonce.verify.wire.history import History


def planned_ends(history: History) -> list[dict[int, int]]:
    """Where each planned batch begins and ends, per input partition, as the pipeline said it."""
    ends = []
    for mark in history.marks:
        if mark.what == "planned":
            try:
                positions = ast.literal_eval(mark.detail)
            except (ValueError, SyntaxError):
                continue
            if isinstance(positions, dict):
                numbers = {str(name).rpartition("/")[2]: int(at) for name, at in positions.items()}
                if not all(number.isdigit() for number in numbers):
                    return []  # positions of a table, or of a system of its own: no partitions of the workload
                ends.append({int(number): at for number, at in numbers.items()})
    return ends


def torn_snapshots(workload: Workload, history: History, snapshots: Sequence[Snapshot]) -> list[Finding]:
    """Each snapshot must reach exactly to the end of a planned batch. Judged only where every output can be traced."""
    ends = planned_ends(history)
    if not ends or not workload.generated:
        return []
    place: dict[int, tuple[int, int]] = {}
    count: dict[int, int] = {}
    for record in workload.all:
        place[record.number] = (record.partition, count.get(record.partition, 0))
        count[record.partition] = count.get(record.partition, 0) + 1
    whole = [frozenset(n for n, (p, at) in place.items() if at < end.get(p, 0)) for end in ends]
    allowed = {frozenset(), *whole}
    return found(
        Anomaly.TORN,
        (
            f"at {snapshot.at:.3f} a reader saw {len(snapshot.numbers)} records, which is the end of no batch"
            for snapshot in snapshots
            if snapshot.numbers not in allowed
        ),
    )
