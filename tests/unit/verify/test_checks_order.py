"""Polls, sends and cycles by Jepsen's names, each shown to bite on a history made for it (FAULTS, history checks)."""

from __future__ import annotations

import struct

from atonce.guarantee import Guarantee
from atonce.verify.audit.readers import Seen, transactions
from atonce.verify.checks import cycles as checks_cycles
from atonce.verify.checks import polls as checks_polls
from atonce.verify.checks import sends as checks_sends
from atonce.verify.checks.allowed import ALLOWED, Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.wire.batches import ABORT_MARKER, COMMIT_MARKER, Record
from atonce.verify.wire.decode import BatchHead, Facts
from atonce.verify.wire.history import Entry, History


def data(offset: int, *, partition: int = 0, pid: int = 7, epoch: int = 0) -> Record:
    return Record(partition, offset, b"k", b"v", pid, epoch, True, False)


def plain(offset: int) -> Record:
    return Record(0, offset, b"k", b"v", -1, -1, False, False)


def marker(offset: int, kind: int = COMMIT_MARKER, *, partition: int = 0, pid: int = 7, epoch: int = 1) -> Record:
    return Record(partition, offset, struct.pack(">hh", 0, kind), b"", pid, epoch, True, True)


def produced(base: int, sequence: int, *, epoch: int = 0, transactional: bool = True, ok: bool = True) -> Entry:
    head = BatchHead(0, 7, epoch, sequence, 1, transactional, False, 70)
    facts = Facts(topics=("t",), producer_id=7, epoch=epoch, batches=(("t", 0, head),))
    outcome = "answered" if ok else "unknown"
    return Entry(
        at=float(base),
        connection=1,
        client_id=None,
        api="produce",
        version=12,
        facts=facts,
        outcome=outcome,
        base_offsets=(("t", 0, base),),
    )


def took(pid: int, upto: int, *, group: str) -> list[Entry]:
    """Transaction (pid, epoch 0) read partition 0 of t up to `upto`, and committed."""
    offsets = Facts(group=group, producer_id=pid, epoch=0, offsets=(("t", 0, upto),))
    end = Facts(producer_id=pid, epoch=0, committed=True)
    made = [("txn_offset_commit", offsets), ("end_txn", end)]
    return [
        Entry(at=1.0, connection=1, client_id=None, api=api, version=5, facts=facts, outcome="answered")
        for api, facts in made
    ]


def history(*entries: Entry) -> History:
    made = History()
    for entry in entries:
        made.add(entry)
    return made


def kinds(findings: list[Finding]) -> list[Anomaly]:
    return [finding.anomaly for finding in findings]


def seen(*places: tuple[int, int]) -> list[Seen]:
    return [Seen(1.0, plain(offset), poll) for offset, poll in places]


def test_a_reader_that_is_sent_back_is_nonmonotonic_between_polls_or_within_one() -> None:
    assert kinds(checks_polls.reader_order("t", seen((4, 1), (3, 2)), [])) == [Anomaly.NONMONOTONIC_POLL]
    assert kinds(checks_polls.reader_order("t", seen((4, 1), (3, 1)), [])) == [Anomaly.INT_NONMONOTONIC_POLL]
    assert checks_polls.reader_order("t", seen((3, 1), (4, 2)), []) == []


def test_a_last_stable_offset_that_moves_back_is_nonmonotonic() -> None:
    assert kinds(checks_polls.reader_order("t", [], ["last stable offset went back"])) == [Anomaly.NONMONOTONIC_POLL]


def test_a_reader_that_goes_past_a_record_skips_it_between_polls_or_within_one() -> None:
    log = [plain(0), plain(1), plain(2)]
    assert kinds(checks_polls.skipped("t", log, seen((0, 1), (2, 2)), transactions(log))) == [Anomaly.POLL_SKIP]
    assert kinds(checks_polls.skipped("t", log, seen((0, 1), (2, 1)), transactions(log))) == [Anomaly.INT_POLL_SKIP]
    assert checks_polls.skipped("t", log, seen((0, 1), (1, 1), (2, 2)), transactions(log)) == []


def test_aborted_data_and_markers_are_no_skip() -> None:
    log = [plain(0), data(1), marker(2, ABORT_MARKER), plain(3)]
    assert checks_polls.skipped("t", log, seen((0, 1), (3, 2)), transactions(log)) == []


def test_a_later_batch_of_a_producer_before_an_earlier_one_is_a_nonmonotonic_send() -> None:
    """F17."""
    inside = history(produced(5, sequence=0), produced(3, sequence=1))
    assert kinds(checks_sends.send_order("t", inside)) == [Anomaly.INT_REORDERED]
    across = history(produced(5, sequence=0, epoch=1), produced(3, sequence=0, epoch=2))
    assert kinds(checks_sends.send_order("t", across)) == [Anomaly.REORDERED]
    no_transaction = history(produced(5, sequence=0, transactional=False), produced(3, sequence=1, transactional=False))
    assert kinds(checks_sends.send_order("t", no_transaction)) == [Anomaly.REORDERED]


def test_a_retry_that_is_answered_with_its_first_offset_is_in_order() -> None:
    assert checks_sends.send_order("t", history(*[produced(3, 0), produced(4, 1), produced(3, 0)])) == []


def test_a_batch_without_an_answer_is_never_out_of_order() -> None:
    assert checks_sends.send_order("t", history(produced(5, 0), produced(3, 1, ok=False))) == []


def test_an_older_epoch_behind_a_newer_one_is_a_nonmonotonic_send() -> None:
    """F15, F16."""
    assert kinds(checks_sends.epochs_in_order("t", [data(0, epoch=2), data(1, epoch=1)])) == [Anomaly.REORDERED]
    assert checks_sends.epochs_in_order("t", [data(0, epoch=1), data(1, epoch=2), data(2, pid=9)]) == []


def test_others_records_inside_a_transaction_are_a_send_skip_which_is_legal() -> None:
    found = checks_sends.send_skips("t", [data(0), data(1, pid=9), data(2)])
    assert kinds(found) == [Anomaly.INT_SEND_SKIP]
    assert Anomaly.INT_SEND_SKIP in ALLOWED[Guarantee.EFFECTIVELY_ONCE]
    assert checks_sends.send_skips("t", [data(0), data(1), data(2, pid=9)]) == []


def test_two_transactions_in_opposite_orders_are_g0_which_is_legal() -> None:
    one_way = [data(0), data(1, pid=9), marker(2), marker(3, pid=9)]
    other_way = [data(0, partition=1, pid=9), data(1, partition=1)]
    other_way += [marker(2, partition=1), marker(3, partition=1, pid=9)]
    assert kinds(checks_cycles.write_cycles("t", one_way + other_way)) == [Anomaly.G0]
    assert Anomaly.G0 in ALLOWED[Guarantee.EFFECTIVELY_ONCE]
    assert checks_cycles.write_cycles("t", one_way) == []


def test_two_transactions_that_read_each_others_writes_are_g1c_which_no_level_allows() -> None:
    log = [data(0), data(1, pid=9), marker(2), marker(3, pid=9)]
    both = history(*took(7, 2, group="a"), *took(9, 1, group="b"))
    assert kinds(checks_cycles.information_cycles("t", log, both)) == [Anomaly.G1C]
    assert all(Anomaly.G1C not in allowed for allowed in ALLOWED.values())
    one_way = history(*took(9, 1, group="b"))
    assert checks_cycles.information_cycles("t", log, one_way) == []


def test_a_read_of_aborted_data_makes_no_cycle() -> None:
    log = [data(0), data(1, pid=9), marker(2, ABORT_MARKER), marker(3, pid=9)]
    both = history(*took(7, 2, group="a"), *took(9, 1, group="b"))
    assert checks_cycles.information_cycles("t", log, both) == []
