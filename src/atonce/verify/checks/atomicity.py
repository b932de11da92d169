"""torn-txn at a table: what a reader saw at one moment must be whole batches, never a part of one (S18)."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from atonce.verify.audit.table_watch import Snapshot
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.ground.workload import Workload
from atonce.verify.wire.history import History


def planned_ends(history: History) -> list[dict[str, int]]:
    """Where each planned batch begins and ends, by topic/partition, as the pipeline said it."""
    ends = []
    for mark in history.marks:
        if mark.what == "planned":
            try:
                positions = ast.literal_eval(mark.detail)
            except (ValueError, SyntaxError):
                continue
            if isinstance(positions, dict):
                if not all(str(name).rpartition("/")[2].isdigit() for name in positions):
                    return []  # positions of a table, or of a system of its own: no partitions of the workload
                ends.append({str(name): int(at) for name, at in positions.items()})
    return ends


def torn_snapshots(
    workload: Workload,
    history: History,
    snapshots: Sequence[Snapshot],
    topics: tuple[str, str],
    traced: frozenset[int] | None = None,
) -> list[Finding]:
    """Each snapshot must reach exactly to the end of a planned batch. Judged only where output can be traced.

    `topics` are those of the input; `traced` the numbers that a clean run's output shows, None: all. Only these are
    looked at: a row that a table replaces by a newer one of its key is there for a while, one that stays to the end
    stays from its batch on.
    """
    ends = planned_ends(history)
    if not ends or not workload.generated:
        return []
    place: dict[int, tuple[str, int]] = {}
    count: dict[str, int] = {}
    for record in workload.all:
        partition = f"{topics[record.beside]}/{record.partition}"
        at = count.get(partition, 0) if record.offset is None else record.offset
        count[partition] = count.get(partition, 0) + 1
        if traced is None or record.number in traced:
            place[record.number] = (partition, at)
    allowed = {frozenset(), *(frozenset(n for n, (p, at) in place.items() if at < end.get(p, 0)) for end in ends)}
    return found(
        Anomaly.TORN,
        (
            f"at {snapshot.at:.3f} a reader saw {len(snapshot.numbers)} records, which is the end of no batch"
            for snapshot in snapshots
            if snapshot.numbers & place.keys() not in allowed
        ),
    )
