"""`atonce broker --repair`: what a start refuses, shown, and taken out when the user says so.

Logs first (`log/repair.py`), then the two journals. A key of a journal whose newest record cannot be read goes back to
its newest one that can. A transactional id is forgotten instead if some log has seen its producer with a higher epoch
than that: going on from there, new records could be taken for old ones and dropped. Where a record of the transactions'
journal is lost, producer ids go on far above all that were ever seen, so that none is handed out twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from atonce.broker.address import DataLock
from atonce.broker.coordination import replays
from atonce.broker.journal import journal_batch
from atonce.broker.topics import TOPIC_LIST, log_directory, read_list
from atonce.coordinator.decision import CONSUMER_OFFSETS, TRANSACTION_STATE, JournalBatch, JournalRecord
from atonce.coordinator.groups import records as group_records
from atonce.coordinator.groups.groups import GroupConfig, GroupCoordinator
from atonce.coordinator.groups.records import GroupRecord, GroupSnapshot
from atonce.coordinator.replaying import Replay
from atonce.coordinator.transactions import records as transaction_records
from atonce.coordinator.transactions.records import PRODUCER_IDS, ProducerIdsRecord, TransactionRecord
from atonce.coordinator.transactions.transactions import TransactionConfig, TransactionCoordinator
from atonce.errors import CorruptLogError, UsageError
from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.log.repair import LogDamage, mend
from atonce.log.results import AppendOrigin
from atonce.log.storage import DiskStorage
from atonce.records.record import build_batch

# Ids that were handed out and never wrote anything are among these.
_SPARE_PRODUCER_IDS = 1_000_000
_GROUP_KEY = b"\0\x02"


class _NoTopics:
    """What the group coordinator asks of topics, where nothing is decided."""

    def partition_count(self, topic: str) -> None:
        return None

    def topic_id(self, topic: str) -> None:
        return None

    def topic_name(self, topic_id: object) -> None:
        return None

    def names(self) -> tuple[str, ...]:
        return ()


@dataclass(slots=True)
class Repair:
    """What one look at a data directory has found, in the words that are shown."""

    data: Path
    partitions: int = 0
    lost: list[str] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[LogDamage] = field(default_factory=list)
    records: dict[str, list[JournalRecord]] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        return bool(self.lost or self.journals)

    def lines(self) -> Iterator[str]:
        yield f"{self.data}: {self.partitions} partitions were looked at."
        for title, lines in (
            ("Cannot be read, and would be taken out:", self.lost),
            ("In the coordinators' journals:", self.journals),
            ("Cannot be read, and is nobody's state; every start passes it over:", self.passed_over),
        ):
            if lines:
                yield title
                yield from (f"  {line}" for line in lines)

    def apply(self) -> Path:
        """Do it; returns where the files as they were are kept. The data directory must be locked."""
        kept = self.data / f"repaired-{time.strftime('%Y%m%d-%H%M%S')}"
        kept.mkdir()
        storage = DiskStorage(self.data)
        for directory in self.missing:
            PartitionLog.prepare(storage, directory)
        storage.sync_all()
        for damage in self.damaged:
            mend(damage, kept / damage.layout.directory)
        for topic, records in self.records.items():
            _journal(storage, topic, records)
        storage.sync_directory()
        return kept


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def look(data: Path) -> Repair:
    """Read everything, change nothing."""
    path = data / TOPIC_LIST
    if not path.exists():
        raise CorruptLogError(f"{path} is not there, so nobody knows which topics there are. Put it back from a copy.")
    repair = Repair(data)
    storage = DiskStorage(data)
    epochs: dict[int, int] = {}
    journals: dict[str, LogDamage] = {}
    for entry in read_list(path)["topics"]:
        for index in range(entry["partitions"]):
            directory = log_directory(entry["name"], index)
            repair.partitions += 1
            if not storage.exists(directory):
                repair.missing.append(directory)
                repair.lost.append(f"{directory}: everything; an empty log that begins at offset 0 takes its place")
                continue
            damage = LogDamage(storage, directory)
            for producer_id, epoch in damage.epochs.items():
                epochs[producer_id] = max(epoch, epochs.get(producer_id, -1))
            if damage.lost:
                repair.damaged.append(damage)
                repair.lost += [str(one) for one in damage.lost]
            if entry["name"] in (TRANSACTION_STATE, CONSUMER_OFFSETS):
                journals[entry["name"]] = damage
    _look_at_transactions(repair, journals.get(TRANSACTION_STATE), epochs)
    _look_at_groups(repair, journals.get(CONSUMER_OFFSETS))
    return repair


def repair_data(data: Path, *, do_it: bool) -> tuple[Repair, Path | None]:
    """Look, and put right what was found if that is wanted."""
    if not data.is_dir():
        raise UsageError(f"{data}: there is no such directory")
    lock = DataLock(data)
    try:
        found = look(data)
        if not do_it or not found.is_needed:
            return found, None
        kept = found.apply()
        if (left := look(data)).is_needed:
            raise CorruptLogError(
                f"{data} was repaired, and still: {(left.lost + left.journals)[0]}. {kept} is as it was."
            )
        return found, kept
    finally:
        lock.release()


def _batches(damage: LogDamage) -> Iterator[JournalBatch]:
    return (journal_batch(header, batch) for header, batch in damage.batches())


def _look_at_transactions(repair: Repair, damage: LogDamage | None, epochs: dict[int, int]) -> None:
    if damage is None:
        return
    replay, _ = replays()
    coordinator = TransactionCoordinator(TransactionConfig())
    handed_out = 0

    def apply(record: object, _: object) -> None:
        nonlocal handed_out
        coordinator.apply(record)
        if isinstance(record, ProducerIdsRecord):
            handed_out = max(handed_out, record.next_producer_id)

    replay.run(_batches(damage), apply)
    repair.passed_over += [str(one) for one in replay.passed_over]
    if not replay.hiding and not damage.lost:
        return
    records = _told_again(repair, replay, damage)
    known = coordinator.list_transactions(0)
    for metadata in known:
        seen = epochs.get(metadata.producer_id, -1)
        if seen > metadata.producer_epoch:
            repair.journals.append(
                f"transactional id {metadata.transactional_id!r} is forgotten: a log has seen epoch {seen} of its "
                f"producer, the newest record that can be read says {metadata.producer_epoch}. What it has left open "
                "is shown by `atonce transactions find-hanging`"
            )
            records.append(transaction_records.encode(TransactionRecord(metadata.transactional_id, None)))
    above = max([handed_out, *epochs, *(one.producer_id for one in known)]) + _SPARE_PRODUCER_IDS
    repair.journals.append(f"producer ids go on at {above}")
    records.append(transaction_records.encode(ProducerIdsRecord(above)))
    repair.records[TRANSACTION_STATE] = records


def _look_at_groups(repair: Repair, damage: LogDamage | None) -> None:
    if damage is None:
        return
    _, replay = replays()
    groups = GroupCoordinator(GroupConfig(), _NoTopics())
    replay.run(
        _batches(damage), groups.apply, lambda producer, commit: groups.apply_marker(producer.producer_id, commit)
    )
    repair.passed_over += [str(one) for one in replay.passed_over]
    if damage.lost:
        repair.journals.append("offsets and groups in what is taken out go back to what stands before it")
    if replay.hiding:
        repair.records[CONSUMER_OFFSETS] = _told_again(repair, replay, damage)


def _told_again(repair: Repair, replay: Replay, damage: LogDamage) -> list[JournalRecord]:
    """For each name whose newest record cannot be read: its newest one that can, or that there is nothing."""
    bad = {one.offset for one in (*replay.passed_over, *replay.hiding.values())}
    newest: dict[str, JournalRecord] = {}
    keys: dict[str, bytes] = {}
    for record in _in_force(_batches(damage)):
        name = replay.name_of(record.key)
        if name is not None and name in replay.hiding:
            keys[name] = record.key
            if record.offset not in bad:
                newest[name] = record
    records = []
    for name, unreadable in replay.hiding.items():
        if name == PRODUCER_IDS or name not in keys:
            continue
        found = newest.get(name)
        record = _nothing(keys[name]) if found is None else found
        back = "is forgotten" if found is None else f"goes back to its record at offset {found.offset}"
        repair.journals.append(f"{name} {back}, as the one at offset {unreadable.offset} says: {unreadable.reason}")
        records.append(record)
    return records


def _nothing(key: bytes) -> JournalRecord:
    """A tombstone; but a classic group stays, without members, or it would be lost with the offsets it still has."""
    group = group_records.decode(JournalRecord(key, None)) if key[:2] == _GROUP_KEY else None
    if not isinstance(group, GroupRecord):
        return JournalRecord(key, None)
    empty = GroupSnapshot(protocol_type="", generation=0, protocol=None, leader=None, state_ms=now_ms(), members=())
    return group_records.encode(GroupRecord(group.group_id, empty))


def _in_force(batches: Iterable[JournalBatch]) -> Iterator[JournalRecord]:
    """The records in the order in which they took effect: those of a transaction when it committed."""
    open_: dict[int, list[JournalRecord]] = {}
    for batch in batches:
        if batch.marker is not None and batch.producer is not None:
            held = open_.pop(batch.producer.producer_id, [])
            yield from held if batch.marker else []
        elif batch.producer is not None:
            open_.setdefault(batch.producer.producer_id, []).extend(batch.records)
        else:
            yield from batch.records


def _journal(storage: DiskStorage, topic: str, records: list[JournalRecord]) -> None:
    log = PartitionLog.open(storage, log_directory(topic, 0), LogConfig(), now_ms)
    batch = build_batch([(one.key, one.value) for one in records], timestamp_ms=now_ms())
    log.append(batch, origin=AppendOrigin.COORDINATOR)
    log.flush()
    log.close()
