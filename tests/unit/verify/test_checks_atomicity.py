"""torn-txn at a table: a snapshot is whole batches or it is torn (S18)."""

from __future__ import annotations

from atonce.verify.audit.table_watch import Snapshot
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.atomicity import planned_ends, torn_snapshots
from atonce.verify.ground.workload import generated
from atonce.verify.wire.history import History

WORK = generated(3, 20, 2, 0)
FIRST = {p: sum(1 for r in WORK.all[:10] if r.partition == p) for p in (0, 1)}


def history() -> History:
    made = History()
    made.mark("planned", str({"in/0": 0, "in/1": 0}))
    made.mark("planned", str({f"in/{p}": at for p, at in FIRST.items()}))
    return made


def test_plans_are_read_from_what_the_pipeline_said() -> None:
    assert planned_ends(history()) == [{0: 0, 1: 0}, FIRST]


def test_nothing_and_a_whole_batch_are_not_torn() -> None:
    seen = [Snapshot(1.0, frozenset()), Snapshot(2.0, frozenset(range(10)))]
    assert torn_snapshots(WORK, history(), seen) == []


def test_a_part_of_a_batch_is_torn() -> None:
    (finding,) = torn_snapshots(WORK, history(), [Snapshot(1.0, frozenset(range(9)))])
    assert (finding.anomaly, finding.count) == (Anomaly.TORN, 1)


def test_without_plans_nothing_is_judged() -> None:
    assert torn_snapshots(WORK, History(), [Snapshot(1.0, frozenset({3}))]) == []


def test_positions_that_are_no_partitions_of_the_workload_are_not_judged() -> None:
    history = History()
    history.mark("planned", "{'outbox': 10}")
    assert planned_ends(history) == []
