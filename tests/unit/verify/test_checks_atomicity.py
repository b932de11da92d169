"""torn-txn at a table: a snapshot is whole batches or it is torn (S18)."""

from __future__ import annotations

from dataclasses import replace

from atonce.verify.audit.table_watch import Snapshot
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.atomicity import planned_ends, torn_snapshots
from atonce.verify.ground.workload import generated
from atonce.verify.wire.history import History

WORK = generated(3, 20, 2, 0)
TOPICS = ("in", "in-second")
FIRST = {p: sum(1 for r in WORK.all[:10] if r.partition == p) for p in (0, 1)}


def history() -> History:
    made = History()
    made.mark("planned", str({"in/0": 0, "in/1": 0}))
    made.mark("planned", str({f"in/{p}": at for p, at in FIRST.items()}))
    return made


def test_plans_are_read_from_what_the_pipeline_said() -> None:
    assert planned_ends(history()) == [{"in/0": 0, "in/1": 0}, {f"in/{p}": at for p, at in FIRST.items()}]


def test_nothing_and_a_whole_batch_are_not_torn() -> None:
    seen = [Snapshot(1.0, frozenset()), Snapshot(2.0, frozenset(range(10)))]
    assert torn_snapshots(WORK, history(), seen, TOPICS) == []


def test_a_part_of_a_batch_is_torn() -> None:
    (finding,) = torn_snapshots(WORK, history(), [Snapshot(1.0, frozenset(range(9)))], TOPICS)
    assert (finding.anomaly, finding.count) == (Anomaly.TORN, 1)


def test_without_plans_nothing_is_judged() -> None:
    assert torn_snapshots(WORK, History(), [Snapshot(1.0, frozenset({3}))], TOPICS) == []


def test_records_stand_at_their_offsets_and_those_without_a_trace_are_not_missed() -> None:
    moved = replace(WORK, head=tuple(replace(r, offset=r.number) for r in WORK.head))
    plans = History()
    plans.mark("planned", str({"in/0": 10, "in/1": 10}))
    seen = [Snapshot(1.0, frozenset(range(1, 10)))]
    assert torn_snapshots(moved, plans, seen, TOPICS)
    assert torn_snapshots(moved, plans, seen, TOPICS, traced=frozenset(range(1, 20))) == []


def test_a_row_that_a_newer_one_of_its_key_replaces_is_not_missed_and_one_that_stays_is() -> None:
    stay = frozenset({8, 9, 18, 19})
    seen = [Snapshot(1.0, frozenset({0, 1, 8, 9}))]
    assert torn_snapshots(WORK, history(), seen, TOPICS, traced=stay) == []
    torn = [Snapshot(1.0, frozenset({0, 1, 8}))]
    assert torn_snapshots(WORK, history(), torn, TOPICS, traced=stay)


def test_positions_that_are_no_partitions_of_the_workload_are_not_judged() -> None:
    history = History()
    history.mark("planned", "{'outbox': 10}")
    assert planned_ends(history) == []
