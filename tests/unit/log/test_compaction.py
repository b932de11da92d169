"""Compaction keeps what Kafka's cleaner keeps. Issue 4: newest per key, tombstones, markers, producers, offsets."""

from __future__ import annotations

import dataclasses

import pytest

from atonce.log.config import LogConfig
from atonce.log.errors import CorruptMessage, KafkaStorageError
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin
from atonce.records.batch import assemble, read_header, verify
from atonce.records.compression import Compression, compress
from atonce.records.record import Record, build_batch, iter_records, read_marker
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock, committed_records, read_all

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=600, retention_ms=-1, delete_retention_ms=1_000)
FILLER = b"x" * 40


class Compacted:
    """A compacted log with helpers; `roll` fills the active segment so that what came before can be cleaned."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.storage, self.clock = ForgetfulStorage(), TestClock()
        self.log = PartitionLog.open(self.storage, "t-0", config, self.clock)
        self.fillers = 0

    def put(self, *pairs: tuple[bytes, bytes | None], compression: Compression = Compression.NONE, **who: int) -> int:
        batch = build_batch(list(pairs), timestamp_ms=self.clock(), compression=compression, **who)  # type: ignore[arg-type]
        return self.log.append(batch).base_offset

    def roll(self) -> None:
        count = self.log.segment_count
        while self.log.segment_count == count:
            self.fillers += 1
            self.put((b"filler-%d" % self.fillers, FILLER))
        self.log.flush()

    def records(self) -> list[Record]:
        return [
            record
            for header, batch in read_all(self.log)
            if not header.is_control and header.record_count
            for record in iter_records(batch)
            if record.key is not None and not record.key.startswith(b"filler")
        ]

    def reopen(self) -> None:
        self.log = PartitionLog.open(self.storage.power_cut(None), "t-0", self.log.config, self.clock)


@pytest.fixture
def topic() -> Compacted:
    return Compacted()


def pairs(records: list[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records]


@pytest.mark.parametrize("compression", list(Compression))
def test_the_newest_record_of_each_key_stays_at_its_offset(compression: Compression) -> None:
    topic = Compacted()
    topic.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), compression=compression)
    topic.put((b"c", b"1"), (b"a", b"3"), compression=compression)
    topic.roll()
    end = topic.log.log_end_offset
    assert topic.log.compact(force=True)
    expected = [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert pairs(topic.records()) == expected
    assert topic.log.log_end_offset == end
    topic.reopen()
    assert pairs(topic.records()) == expected


def test_cleaned_batches_are_whole_and_smaller(topic: Compacted) -> None:
    for index in range(30):
        topic.put((b"same", b"value-%d" % index + FILLER))
    topic.roll()
    before = topic.log.size_bytes
    assert topic.log.compact(force=True)
    assert topic.log.size_bytes < before / 2
    for header, batch in read_all(topic.log):
        verify(batch, 0, header)


def test_the_active_segment_is_never_cleaned(topic: Compacted) -> None:
    topic.put((b"a", b"1"))
    topic.put((b"a", b"2"))
    topic.log.flush()
    assert not topic.log.compact(force=True)
    assert len(topic.records()) == 2


def test_newer_records_in_the_active_segment_do_not_remove_older_ones(topic: Compacted) -> None:
    topic.put((b"a", b"1"))
    topic.roll()
    topic.put((b"a", b"2"))
    topic.log.flush()
    topic.log.compact(force=True)
    assert [record.value for record in topic.records()] == [b"1", b"2"]


def test_a_tombstone_stays_for_delete_retention_ms_and_then_goes(topic: Compacted) -> None:
    topic.put((b"a", b"1"))
    topic.put((b"a", None))
    topic.roll()
    topic.log.compact(force=True)
    assert pairs(topic.records()) == [(1, b"a", None)]
    timestamps = [record.timestamp_ms for record in topic.records()]
    assert timestamps == [topic.clock()], "the delete horizon does not change what readers see"
    topic.clock.now_ms += 999
    topic.log.compact(force=True)
    assert len(topic.records()) == 1
    topic.clock.now_ms += 1
    topic.log.compact(force=True)
    assert topic.records() == []
    topic.reopen()
    assert topic.records() == []


def test_nothing_happens_below_the_dirty_ratio() -> None:
    topic = Compacted(dataclasses.replace(CONFIG, min_cleanable_dirty_ratio=0.9))
    for index in range(30):
        topic.put((b"k-%d" % index, FILLER))
    topic.roll()
    assert topic.log.compact()
    topic.put((b"a", b"1"))
    topic.roll()
    assert not topic.log.compact()
    assert topic.log.compact(force=True)


def test_min_compaction_lag_protects_young_segments() -> None:
    topic = Compacted(dataclasses.replace(CONFIG, min_compaction_lag_ms=5_000))
    topic.put((b"a", b"1"))
    topic.put((b"a", b"2"))
    topic.roll()
    assert not topic.log.compact(force=True)
    topic.clock.now_ms += 5_000
    assert topic.log.compact(force=True)
    assert [record.value for record in topic.records()] == [b"2"]


def test_delete_only_topics_are_not_compacted() -> None:
    topic = Compacted(dataclasses.replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    topic.put((b"a", b"1"))
    topic.put((b"a", b"2"))
    topic.roll()
    assert not topic.log.compact(force=True)


def begin(topic: Compacted, producer: int, *items: tuple[bytes, bytes | None], epoch: int = 0) -> None:
    guard = topic.log.start_verification(producer, epoch, 0, supports_epoch_bump=True)
    topic.log.append(
        build_batch(
            list(items),
            timestamp_ms=topic.clock(),
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        ),
        guard=guard,
    )


def committed(topic: Compacted) -> list[tuple[bytes | None, bytes | None]]:
    found = [(record.key, record.value) for record in committed_records(topic.log)]
    return [pair for pair in found if pair[0] is not None and not pair[0].startswith(b"filler")]


def test_aborted_records_neither_stay_nor_hide_committed_ones(topic: Compacted) -> None:
    topic.put((b"a", b"good"))
    begin(topic, 1, (b"a", b"aborted"), (b"b", b"aborted"))
    topic.log.append_marker(1, 1, False, 0)
    begin(topic, 2, (b"c", b"committed"))
    topic.log.append_marker(2, 1, True, 0)
    topic.roll()
    topic.log.compact(force=True)
    assert committed(topic) == [(b"a", b"good"), (b"c", b"committed")]
    assert [record.value for record in topic.records()] == [b"good", b"committed"]
    topic.reopen()
    assert committed(topic) == [(b"a", b"good"), (b"c", b"committed")]


def test_a_transaction_that_is_open_is_not_cleaned(topic: Compacted) -> None:
    topic.put((b"a", b"1"))
    begin(topic, 1, (b"a", b"2"))
    topic.roll()
    topic.roll()
    topic.log.compact(force=True)
    assert [record.value for record in topic.records()] == [b"1", b"2"]
    topic.log.append_marker(1, 1, True, 0)
    topic.roll()
    topic.log.compact(force=True)
    assert committed(topic) == [(b"a", b"2")]


def markers(topic: Compacted) -> int:
    return sum(1 for header, _ in read_all(topic.log) if header.is_control and header.record_count)


def test_markers_go_after_their_records_and_the_delete_horizon(topic: Compacted) -> None:
    for epoch in range(3):
        begin(topic, 1, (b"a", b"%d" % epoch), epoch=epoch)
        topic.log.append_marker(1, epoch + 1, epoch != 1, 0)
    topic.roll()
    topic.log.compact(force=True)
    assert committed(topic) == [(b"a", b"2")]
    assert markers(topic) >= 2
    topic.log.compact(force=True)  # the records are gone now: the markers get their horizon
    topic.clock.now_ms += 1_001
    topic.log.compact(force=True)
    assert markers(topic) == 1, "only the marker of the records that are still there stays"
    assert committed(topic) == [(b"a", b"2")]
    topic.reopen()
    assert committed(topic) == [(b"a", b"2")]


@pytest.mark.parametrize("snapshots", ["kept", "lost"])
def test_producer_state_survives_compaction(topic: Compacted, snapshots: str) -> None:
    """The last batch of an active producer stays, if only as a header, so the log alone gives the sequence back."""
    for sequence in range(3):
        topic.put((b"a", b"%d" % sequence), producer_id=9, producer_epoch=2, base_sequence=sequence)
    topic.put((b"a", b"plain"))
    topic.roll()
    topic.log.compact(force=True)
    assert [record.value for record in topic.records()] == [b"plain"]
    topic.log.close()
    if snapshots == "lost":
        for path in [path for path in topic.storage.names if path.endswith(".snapshot")]:
            topic.storage.remove(path)
        topic.storage.sync_directory("t-0")
    topic.reopen()
    (info,) = topic.log.producers()
    assert (info.producer_id, info.producer_epoch, info.last_sequence) == (9, 2, 2)
    retry = build_batch([(b"a", b"2")], timestamp_ms=0, producer_id=9, producer_epoch=2, base_sequence=2)
    assert topic.log.append(retry).duplicate
    assert topic.log.append(retry).base_offset == 2


@pytest.mark.parametrize("compression", list(Compression))
def test_an_emptied_batch_is_readable(topic: Compacted, compression: Compression) -> None:
    """All that is left of a producer's last batch is its header; nobody may stumble over it."""
    topic.put((b"a", b"1"), compression=compression, producer_id=9, producer_epoch=0, base_sequence=0)
    begin(topic, 5, (b"a", b"2"))
    topic.log.append_marker(5, 1, True, 0)
    topic.put((b"a", b"3"))
    topic.roll()
    for _ in range(3):
        topic.log.compact(force=True)
        topic.clock.now_ms += 1_001
    empty = [(header, batch) for header, batch in read_all(topic.log) if header.record_count == 0]
    assert {header.producer_id for header, _ in empty} == {9, 5}
    for header, batch in empty:
        verify(batch, 0, header)
        assert list(iter_records(batch)) == []
        assert not header.is_control or read_marker(batch) is None
    topic.reopen()
    assert committed(topic) == [(b"a", b"3")]


def test_neighbouring_segments_are_merged(topic: Compacted) -> None:
    for _ in range(6):
        topic.put(*[(b"k-%d" % index, FILLER) for index in range(5)])
        topic.roll()
    before = topic.log.segment_count
    for _ in range(4):
        topic.log.compact(force=True)
    assert topic.log.segment_count < before
    bases = [name for name in topic.storage.list("t-0") if name.endswith(".log")]
    assert len(bases) == topic.log.segment_count
    topic.reopen()
    assert topic.log.segment_count == len(bases)


def test_reads_from_an_offset_that_was_cleaned_away_go_on_after_it(topic: Compacted) -> None:
    for index in range(10):
        topic.put((b"same", b"%d" % index + FILLER))
    topic.roll()
    topic.log.compact(force=True)
    for offset in range(topic.log.log_end_offset):
        assert topic.log.read(offset, 1 << 20).size > 0


def test_damage_stops_the_cleaner_instead_of_being_copied(topic: Compacted) -> None:
    """F13."""
    topic.put((b"a", b"1" + FILLER))
    topic.put((b"a", b"2" + FILLER))
    topic.roll()
    topic.storage.names["t-0/00000000000000000000.log"].current[90] ^= 1
    with pytest.raises(CorruptMessage, match="damaged at position"):
        topic.log.compact(force=True)


def test_a_full_disk_leaves_the_log_as_it_was(topic: Compacted) -> None:
    """F12: at every amount of room."""
    for index in range(12):
        topic.put((b"k-%d" % (index % 4), b"%d" % index + FILLER))
    topic.roll()
    before = pairs(topic.records())
    failures = 0
    for room in range(0, 4000, 150):
        again = Compacted()
        again.clock, again.storage = topic.clock, topic.storage.power_cut(None)
        again.log = PartitionLog.open(again.storage, "t-0", CONFIG, topic.clock)
        again.storage.free_bytes = room
        try:
            again.log.compact(force=True)
        except KafkaStorageError:
            failures += 1
            assert pairs(again.records()) == before
        newest = {key: value for _, key, value in pairs(again.records())}
        assert newest == {key: value for _, key, value in before}
        again.storage.free_bytes = None
        again.reopen()
        assert {key: value for _, key, value in pairs(again.records())} == newest
    assert failures >= 2


def test_both_policies_together(topic: Compacted) -> None:
    topic.log.update_config(
        dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=5_000)
    )
    topic.put((b"a", b"1"))
    topic.put((b"a", b"2"))
    topic.roll()
    assert topic.log.compact(force=True)
    topic.clock.now_ms += 6_000
    assert topic.log.enforce_retention() > 0
    assert topic.records() == []


def lying(codec: Compression, body: bytes) -> bytes:
    """A batch with the right checksum, as one could be sent before batches were looked at."""
    header = read_header(build_batch([(b"a", b"1")] * 3, timestamp_ms=1))
    return assemble(header._replace(attributes=int(codec)), body)


@pytest.mark.parametrize(
    "batch",
    [
        lying(Compression.NONE, b"\xff" * 30),
        lying(Compression.ZSTD, b"no zstd"),
        lying(Compression.ZSTD, compress(Compression.ZSTD, bytes(64 * 1024 * 1024))),
    ],
    ids=["lengths", "garbage", "bomb"],
)
def test_what_cannot_be_unpacked_stays_and_the_rest_is_compacted(batch: bytes) -> None:
    """It stopped the compaction of its partition for good; a bomb took hundreds of megabytes first."""
    topic = Compacted(dataclasses.replace(CONFIG, segment_bytes=8_000))
    topic.put((b"a", b"1"))
    bad = topic.log.append(batch, origin=AppendOrigin.COORDINATOR).base_offset
    topic.put((b"a", b"2"))
    topic.roll()
    assert topic.log.compact(force=True)
    kept = [(header.base_offset, header.record_count) for header, _ in read_all(topic.log)]
    assert kept[:2] == [(bad, 3), (bad + 3, 1)]  # the first `a` is gone, the lie as it was
