"""An epoch for every transaction: what is sent with one that has ended, and taken, begins a transaction nobody ends."""

from __future__ import annotations

from typing import Any

from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.history import begun_again, zombie_writes
from atonce.verify.wire.decode import Facts
from atonce.verify.wire.history import Entry, History


def sent(api: str, at: float, *, epoch: int = 3, errors: tuple[int, ...] = (), **more: Any) -> Entry:
    facts = Facts(transactional_id="x", producer_id=7, epoch=epoch, **more)
    return Entry(
        at=at,
        connection=1,
        client_id=None,
        api=api,
        version=3,
        facts=facts,
        outcome="answered",
        answered_at=at + 0.1,
        errors=errors,
    )


def test_a_partition_that_is_added_after_the_end_begins_another_transaction() -> None:
    end = sent("end_txn", 1.0, committed=True)
    late = sent("add_partitions_to_txn", 2.0)
    assert [f.anomaly for f in begun_again(History(entries=[end, late]))] == [Anomaly.ZOMBIE]


def test_what_is_refused_or_has_the_next_epoch_or_was_sent_before_the_end_begins_nothing() -> None:
    end = sent("end_txn", 1.0, committed=True)
    fine = [
        sent("add_partitions_to_txn", 2.0, errors=(90,)),
        sent("produce", 2.0, epoch=4),
        sent("txn_offset_commit", 0.5),
    ]
    assert begun_again(History(entries=[end, *fine])) == []


def test_brokers_that_do_not_verify_take_rows_of_an_older_epoch_and_the_output_tells_what_became_of_them() -> None:
    claim = sent("init_producer_id", 1.0, extra={"producer_id": 7, "epoch": 5})
    rows, end = sent("produce", 2.0), sent("end_txn", 2.0, committed=True)
    assert zombie_writes(History(entries=[claim, rows]), unverified=True) == []
    assert len(zombie_writes(History(entries=[claim, rows]))) == 1
    assert len(zombie_writes(History(entries=[claim, end]), unverified=True)) == 1
