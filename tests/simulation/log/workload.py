"""A scripted load on one log, and what must be true of the log afterwards, whatever was lost at a power cut.

Every value is unique. The ledger of the load knows what was *acknowledged* (flushed) and what was only *attempted*.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.log.results import Isolation
from atonce.records.batch import BatchHeader, iter_batches
from atonce.records.record import Record, build_batch, iter_records, read_marker

DIRECTORY = "orders-0"
SMALL = LogConfig(segment_bytes=1600, index_interval_bytes=200, checkpoint_bytes=900, retention_ms=-1)


class TestClock:
    __test__ = False

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Sent:
    """One batch that was given to the log."""

    batch: bytes
    values: tuple[bytes, ...]
    producer_id: int
    epoch: int
    sequence: int
    base_offset: int = -1
    acked: bool = False
    transaction: int = -1


@dataclass
class Load:
    """Drives a log and remembers. `outcomes`: transaction → None (open), "commit" or "abort", and whether acknowledged."""

    log: PartitionLog
    clock: TestClock
    sent: list[Sent] = field(default_factory=list)
    unacked: list[Sent] = field(default_factory=list)
    outcomes: dict[int, tuple[str, bool]] = field(default_factory=dict)
    undecided_markers: list[tuple[int, str]] = field(default_factory=list)
    next_sequence: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    open_txn: dict[int, int] = field(default_factory=dict)
    transactions: int = 0
    values: int = 0

    def produce(self, producer_id: int, *, transactional: bool = False, records: int = 1) -> None:
        """One batch; producer id -1 is a plain producer."""
        values = tuple(b"value-%06d-" % (self.values + i) + b"x" * 60 for i in range(records))
        self.values += records
        epoch = self.epochs.get(producer_id, 0)
        sequence = self.next_sequence.get(producer_id, 0)
        guard = None
        if transactional and producer_id not in self.open_txn:
            self.transactions += 1
            self.open_txn[producer_id] = self.transactions
            guard = self.log.start_verification(producer_id, epoch, sequence, supports_epoch_bump=True)
        batch = build_batch(
            [(b"key-%d" % (self.values % 5), value) for value in values],
            timestamp_ms=self.clock(),
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        sent = Sent(
            batch, values, producer_id, epoch, sequence, transaction=self.open_txn[producer_id] if transactional else -1
        )
        self.sent.append(sent)
        self.unacked.append(sent)
        sent.base_offset = self.log.append(batch, guard=guard).base_offset
        self.next_sequence[producer_id] = sequence + records

    def end(self, producer_id: int, outcome: str) -> None:
        """The marker, with the epoch bump of transaction version 2."""
        transaction = self.open_txn.pop(producer_id)
        self.outcomes[transaction] = (outcome, False)
        self.undecided_markers.append((transaction, outcome))
        self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
        self.next_sequence[producer_id] = 0
        self.log.append_marker(producer_id, self.epochs[producer_id], outcome == "commit", 0, transaction_version=2)

    def flush(self) -> None:
        self.log.flush()
        for sent in self.unacked:
            sent.acked = True
        for transaction, outcome in self.undecided_markers:
            self.outcomes[transaction] = (outcome, True)
        self.unacked, self.undecided_markers = [], []


def scripted_load(load: Load) -> None:
    """Plain, idempotent and transactional producers, interleaved; segments roll several times."""
    for turn in range(9):
        load.clock.now_ms += 1_000
        load.produce(-1)
        load.produce(1, records=2)
        load.produce(2, transactional=True)
        load.flush()
        load.produce(3, transactional=True, records=3)
        if turn % 3 == 0:
            load.produce(2, transactional=True)
            load.end(2, "abort" if turn % 2 else "commit")
        if turn % 4 == 1:
            load.flush()
            load.end(3, "commit" if turn % 8 == 1 else "abort")
        load.flush()


# -- reading back


def read_all(log: PartitionLog, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[tuple[BatchHeader, bytes]]:
    """Every batch that a consumer gets, in order, fetched in small pieces."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, 700, isolation=isolation)
        data = result.read()
        got = list(iter_batches(data))
        if not got:
            return found
        for position, header in got:
            if header.last_offset >= offset:
                found.append((header, data[position : position + header.size]))
        offset = got[-1][1].next_offset


def committed_records(log: PartitionLog) -> list[Record]:
    """As a read_committed consumer filters: by the aborted transactions of each fetch."""
    records: list[Record] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, 700, isolation=Isolation.READ_COMMITTED)
        data = result.read()
        got = list(iter_batches(data))
        if not got:
            return records
        waiting = sorted(result.aborted, key=lambda entry: entry[1])
        aborting: set[int] = set()
        for position, header in got:
            batch = data[position : position + header.size]
            while waiting and waiting[0][1] <= header.last_offset:
                aborting.add(waiting.pop(0)[0])
            if header.is_control:
                marker = read_marker(batch) if header.record_count else None
                if marker is not None and not marker.commit:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                records += [record for record in iter_records(batch) if record.offset >= offset]
        offset = got[-1][1].next_offset


def check_recovered(log: PartitionLog, load: Load) -> None:
    """The invariants. Raises AssertionError with what is wrong."""
    batches = read_all(log)
    expected = log.log_start_offset
    values: dict[bytes, int] = {}
    for header, batch in batches:
        assert header.base_offset == expected, f"offset {header.base_offset} where {expected} comes next"
        expected = header.next_offset
        if not header.is_control:
            for record in iter_records(batch):
                assert record.value is not None
                assert record.value not in values, f"{record.value!r} twice: {values[record.value]} and {record.offset}"
                values[record.value] = record.offset
    assert expected == log.log_end_offset == log.high_watermark
    for sent in load.sent:
        for index, value in enumerate(sent.values):
            if sent.acked:
                assert values.get(value) == sent.base_offset + index, f"acknowledged {value!r} is not where it was"
            elif value in values and sent.base_offset >= 0:
                assert values[value] == sent.base_offset + index
    assert set(values) <= {value for sent in load.sent for value in sent.values}
    _check_committed(log, load, values)


def _check_committed(log: PartitionLog, load: Load, values: dict[bytes, int]) -> None:
    visible = {record.value for record in committed_records(log)}
    open_first = [info.current_txn_start_offset for info in log.producers() if info.current_txn_start_offset >= 0]
    assert log.last_stable_offset == min([*open_first, log.high_watermark])
    for sent in load.sent:
        outcome, acked = load.outcomes.get(sent.transaction, ("", False)) if sent.transaction >= 0 else ("plain", True)
        for value in sent.values:
            below = value in values and values[value] < log.last_stable_offset
            if outcome == "plain":
                assert (value in visible) == below
            elif outcome in ("", "abort"):
                assert value not in visible, f"{value!r} of an aborted or open transaction is visible"
            elif acked and below:
                assert value in visible, f"{value!r} is committed and not visible"


def check_producers(log: PartitionLog, load: Load) -> None:
    """A retry of any of the last five batches that are in the log is recognised, acknowledged or not."""
    there = {
        (header.producer_id, header.producer_epoch, header.base_sequence): header.base_offset
        for header, _ in read_all(log)
        if header.has_producer and not header.is_control
    }
    for info in log.producers():
        mine = [key for key in there if key[0] == info.producer_id and key[1] == info.producer_epoch]
        for key in mine[-5:]:
            (sent,) = [s for s in load.sent if (s.producer_id, s.epoch, s.sequence) == key]
            result = log.append(sent.batch)
            assert result.duplicate, f"a retry of producer {info.producer_id} was appended again"
            assert result.base_offset == there[key]
    known = {info.producer_id for info in log.producers()}
    assert {sent.producer_id for sent in load.sent if sent.acked and sent.producer_id >= 0} <= known
