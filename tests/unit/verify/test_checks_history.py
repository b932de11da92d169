"""Checks on the log and on what a read_committed reader was given, by Jepsen's names."""

from __future__ import annotations

import struct

from atonce.verify.audit.readers import Seen, transactions
from atonce.verify.checks import history as checks
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.wire.batches import ABORT_MARKER, COMMIT_MARKER, Record
from atonce.verify.wire.decode import BatchHead, Facts
from atonce.verify.wire.history import Entry, History


def data(offset: int, *, partition: int = 0, pid: int = 7, epoch: int = 0, value: bytes = b"v") -> Record:
    return Record(partition, offset, b"k", value, pid, epoch, True, False)


def marker(offset: int, kind: int, *, partition: int = 0, pid: int = 7, epoch: int = 1) -> Record:
    return Record(partition, offset, struct.pack(">hh", 0, kind), b"", pid, epoch, True, True)


def produced(at: float, offset: int, count: int = 1, *, epoch: int = 0, partition: int = 0, ok: bool = True) -> Entry:
    head = BatchHead(0, 7, epoch, 0, count, True, False, 70)
    facts = Facts(topics=("t",), transactional_id="x", producer_id=7, epoch=epoch, batches=(("t", partition, head),))
    return Entry(
        at=at,
        connection=1,
        client_id=None,
        api="produce",
        version=12,
        facts=facts,
        outcome="answered" if ok else "unknown",
        answered_at=at,
        base_offsets=(("t", partition, offset),) if ok else (),
    )


def ended(at: float, *, commit: bool = True, epoch: int = 0, errors: tuple[int, ...] = ()) -> Entry:
    facts = Facts(transactional_id="x", producer_id=7, epoch=epoch, committed=commit)
    return Entry(
        at=at, connection=1, client_id=None, api="end_txn", version=5, facts=facts, outcome="answered", errors=errors
    )


def began(at: float, epoch: int) -> Entry:
    facts = Facts(transactional_id="x", extra={"producer_id": 7, "epoch": epoch})
    return Entry(
        at=at,
        connection=2,
        client_id=None,
        api="init_producer_id",
        version=5,
        facts=facts,
        outcome="answered",
        answered_at=at,
    )


def history(*entries: Entry) -> History:
    made = History()
    for entry in entries:
        made.add(entry)
    return made


def kinds(findings: list[Finding]) -> list[Anomaly]:
    return [finding.anomaly for finding in findings]


def test_aborted_data_given_to_a_reader_is_g1a() -> None:
    log = [data(0), marker(1, ABORT_MARKER)]
    assert kinds(checks.aborted_reads("t", [Seen(1.0, log[0])], transactions(log))) == [Anomaly.ABORTED_READ]


def test_committed_data_given_to_a_reader_is_not_g1a() -> None:
    log = [data(0), marker(1, COMMIT_MARKER)]
    assert checks.aborted_reads("t", [Seen(1.0, log[0])], transactions(log)) == []


def test_data_seen_before_its_commit_was_asked_for_is_a_precommitted_read() -> None:
    events = history(produced(1.0, 0), ended(3.0))
    assert kinds(checks.precommitted_reads("t", [Seen(2.0, data(0))], events)) == [Anomaly.PRECOMMITTED_READ]
    assert checks.precommitted_reads("t", [Seen(3.5, data(0))], events) == []


def test_an_unknown_outcome_is_never_counted_as_a_precommitted_read() -> None:
    events = history(produced(1.0, 0, ok=False), ended(3.0))
    assert checks.precommitted_reads("t", [Seen(2.0, data(0))], events) == []


def test_an_acknowledged_offset_with_nothing_at_it_is_a_lost_write() -> None:
    (finding,) = checks.acknowledged_writes("t", [data(0)], history(produced(1.0, 0, count=3)))
    assert (finding.anomaly, finding.count) == (Anomaly.LOST, 2)


def test_an_acknowledged_offset_that_holds_anothers_record_is_a_lost_write() -> None:
    found = checks.acknowledged_writes("t", [data(0, pid=99)], history(produced(1.0, 0)))
    assert kinds(found) == [Anomaly.LOST]


def test_a_write_without_an_answer_may_be_there_or_not() -> None:
    assert checks.acknowledged_writes("t", [], history(produced(1.0, 0, ok=False))) == []


def test_a_transaction_committed_in_one_partition_and_aborted_in_another_is_torn() -> None:
    log = [data(0), marker(1, COMMIT_MARKER), data(0, partition=1), marker(1, ABORT_MARKER, partition=1)]
    assert kinds(checks.torn_transactions("t", transactions(log), history(ended(1.0)))) == [Anomaly.TORN]


def test_a_transaction_that_nothing_ends_hangs() -> None:
    log = [data(0)]
    assert kinds(checks.hanging("t", transactions(log), log, held_back=False)) == [Anomaly.HANGING]


def test_a_last_stable_offset_that_stands_still_is_a_hanging_transaction() -> None:
    log = [data(0), marker(1, COMMIT_MARKER)]
    assert kinds(checks.hanging("t", transactions(log), log, held_back=True)) == [Anomaly.HANGING]
    assert checks.hanging("t", transactions(log), log, held_back=False) == []


def test_committed_data_that_no_reader_gets_is_unseen() -> None:
    log = [data(0), marker(1, COMMIT_MARKER)]
    assert kinds(checks.unseen("t", log, [], transactions(log))) == [Anomaly.UNSEEN]


def test_one_offset_with_two_contents_is_inconsistent() -> None:
    found = checks.inconsistent_offsets("t", [data(0, value=b"new")], [Seen(1.0, data(0, value=b"old"))])
    assert kinds(found) == [Anomaly.INCONSISTENT_OFFSETS]


def test_a_write_of_an_epoch_that_was_fenced_before_it_was_sent_is_a_zombie_write() -> None:
    """F16."""
    assert kinds(checks.zombie_writes(history(began(1.0, 3), produced(2.0, 0, epoch=2)))) == [Anomaly.ZOMBIE]


def test_a_write_sent_before_the_fence_is_no_zombie() -> None:
    assert checks.zombie_writes(history(produced(0.5, 0, epoch=2), began(1.0, 3))) == []


def test_a_refused_write_of_a_fenced_epoch_is_no_zombie_write() -> None:
    assert checks.zombie_writes(history(began(1.0, 3), ended(2.0, epoch=2, errors=(47,)))) == []
