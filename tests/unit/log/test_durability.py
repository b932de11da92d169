"""What is on disk, what is refused at open, what happens when the disk says no. SPEC S22, S23; FAULTS F11, F12, F13."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from atonce.errors import CorruptLogError
from atonce.log.config import LogConfig
from atonce.log.errors import CorruptMessage, KafkaStorageError, PartitionOffline
from atonce.log.partition_log import PartitionLog
from atonce.log.storage import DiskStorage
from atonce.records.batch import iter_batches
from atonce.records.record import build_batch, iter_records
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1)
SMALL = LogConfig(retention_ms=-1, segment_bytes=700)
LOG_0 = "t-0/00000000000000000000.log"


def batch(value: bytes) -> bytes:
    return build_batch([(b"k", value)], timestamp_ms=NOW)


def filled(storage: ForgetfulStorage, config: LogConfig = CONFIG, count: int = 10) -> PartitionLog:
    log = PartitionLog.open(storage, "t-0", config, TestClock())
    for index in range(count):
        log.append(batch(b"value-%02d" % index + b"x" * 80))
        log.flush()
    return log


def reopen(storage: ForgetfulStorage, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(storage, "t-0", config, TestClock())


def values(log: PartitionLog) -> list[bytes]:
    found, offset = [], log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, 1 << 20).read()
        for at, header in iter_batches(data):
            found += [r.value[:8] for r in iter_records(data[at : at + header.size]) if r.value is not None]
            offset = header.next_offset
    return found


def content(storage: ForgetfulStorage, path: str) -> bytearray:
    return storage.names[path].current


EXPECTED = [b"value-%02d" % index for index in range(10)]


def test_the_names_are_kafkas() -> None:
    storage = ForgetfulStorage()
    filled(storage, SMALL).close()
    names = storage.list("t-0")
    assert {"00000000000000000000" + suffix for suffix in (".log", ".index", ".timeindex", ".txnindex")} <= set(names)
    assert "00000000000000000010.snapshot" in names
    assert not [name for name in names if name.endswith(".tmp")]


def test_one_flush_serves_everything_that_waits() -> None:
    """The hot path: one fdatasync of the log, then one of the recovery point, which must not come first."""
    storage = ForgetfulStorage()
    log = filled(storage)
    before = len(storage.history)
    for _ in range(5):
        log.append(batch(b"x"))
    log.flush()
    done = storage.history[before:]
    assert [step.split()[0] for step in done] == ["write"] * 5 + ["sync", "write", "sync"]
    assert done[-3:] == [f"sync {LOG_0}", "write t-0/recovery-point 0+28", "sync t-0/recovery-point"]


def test_a_torn_tail_is_cut_at_the_last_whole_batch() -> None:
    """F13."""
    storage = ForgetfulStorage()
    log = filled(storage)
    log.append(batch(b"never acknowledged"))
    killed = storage.killed()
    del content(killed, LOG_0)[-5:]
    again = reopen(killed)
    assert values(again) == EXPECTED
    assert again.append(batch(b"next")).base_offset == 10


def test_whole_batches_beyond_the_recovery_point_are_kept_and_made_durable() -> None:
    storage = ForgetfulStorage()
    log = filled(storage)
    log.append(batch(b"not-ackd"))
    again = reopen(storage.killed())
    assert values(again) == [*EXPECTED, b"not-ackd"]


def test_bytes_a_failed_fsync_left_in_the_cache_are_written_again() -> None:
    """After a failed fsync the kernel shows bytes that are not on disk; recovery must not believe it."""
    storage = ForgetfulStorage()
    log = filled(storage)
    log.append(batch(b"in-cache"))
    storage.fail_sync = lambda path: path.endswith(".log")
    with pytest.raises(PartitionOffline):
        log.flush()
    restarted = storage.killed()
    assert values(reopen(restarted)) == [*EXPECTED, b"in-cache"]
    assert values(reopen(restarted.power_cut(None))) == [*EXPECTED, b"in-cache"]


@pytest.mark.parametrize("position", [0, 8, 20, 70, 400])
def test_damage_before_the_recovery_point_is_refused_with_file_and_position(position: int) -> None:
    """F13: never cut in silence."""
    storage = ForgetfulStorage()
    filled(storage)
    killed = storage.killed()
    content(killed, LOG_0)[position] ^= 0xFF
    before = bytes(content(killed, LOG_0))
    with pytest.raises(CorruptLogError, match=rf"{LOG_0}: damaged at position \d+") as caught:
        reopen(killed)
    found = int(str(caught.value).split("position ")[1].split(":")[0])
    assert found <= position < found + 200
    assert bytes(content(killed, LOG_0)) == before, "nothing is cut"


@pytest.mark.parametrize("keep", [0, 1, 500])
def test_a_log_shorter_than_the_recovery_point_is_refused(keep: int) -> None:
    """F13."""
    storage = ForgetfulStorage()
    size = filled(storage).size_bytes
    killed = storage.killed()
    del content(killed, LOG_0)[keep:]
    with pytest.raises(CorruptLogError, match=f"damaged at position {keep}: it ends there; {size} bytes"):
        reopen(killed)


def test_a_log_shorter_than_a_snapshot_is_refused_although_the_recovery_point_is_older() -> None:
    """F13: after a power cut the recovery point may be behind; the snapshot proves what was synced."""
    storage = ForgetfulStorage()
    log = filled(storage, count=5)
    old_point = bytes(content(storage, "t-0/recovery-point"))
    log.append(batch(b"value-05" + b"x" * 80))
    log.close()
    after = storage.power_cut(None)
    content(after, "t-0/recovery-point")[:] = old_point
    assert len(values(reopen(after.killed()))) == 6
    size = len(content(after, LOG_0))
    del content(after, LOG_0)[-1:]
    with pytest.raises(CorruptLogError, match=f"damaged at position {size - 1}"):
        reopen(after)


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_missing_segment_is_refused(index: int) -> None:
    """F13: the first, one in the middle, the active one."""
    storage = ForgetfulStorage()
    log = filled(storage, SMALL)
    assert log.segment_count >= 3
    killed = storage.killed()
    name = [name for name in killed.list("t-0") if name.endswith(".log")][index]
    killed.remove(f"t-0/{name}")
    with pytest.raises(CorruptLogError, match=f"t-0/{name}"):
        reopen(killed, SMALL)


def test_a_truncated_sealed_segment_is_refused_without_reading_it() -> None:
    storage = ForgetfulStorage()
    filled(storage, SMALL)
    killed = storage.killed()
    size = len(content(killed, LOG_0))
    del content(killed, LOG_0)[-1:]
    with pytest.raises(CorruptLogError, match=f"damaged at position {size - 1}: it has {size - 1} bytes, not {size}"):
        reopen(killed, SMALL)


def test_damage_in_a_sealed_segment_is_refused_on_read_and_never_served() -> None:
    """F13: found when first read; what lies before it is served."""
    storage = ForgetfulStorage()
    filled(storage, SMALL)
    killed = storage.killed()
    content(killed, LOG_0)[300] ^= 1
    log = reopen(killed, SMALL)
    good = log.read(0, 1 << 20).read()
    assert [header.base_offset for _, header in iter_batches(good)] == [0]
    with pytest.raises(CorruptMessage, match=f"{LOG_0}: damaged at position") as caught:
        log.read(1, 1 << 20)
    assert caught.value.code == 2


def test_a_flipped_base_offset_is_damage_too() -> None:
    """The checksum does not cover it, the order of offsets does."""
    storage = ForgetfulStorage()
    filled(storage)
    killed = storage.killed()
    content(killed, LOG_0)[7] ^= 4
    with pytest.raises(CorruptLogError, match="comes next"):
        reopen(killed)


@pytest.mark.parametrize("name", ["recovery-point", "manifest"])
def test_a_damaged_bookkeeping_file_is_refused_and_says_what_to_do(name: str) -> None:
    storage = ForgetfulStorage()
    filled(storage)
    killed = storage.killed()
    content(killed, f"t-0/{name}")[3] ^= 1
    with pytest.raises(CorruptLogError, match=f"t-0/{name}.*remove this file"):
        reopen(killed)
    killed.remove(f"t-0/{name}")
    assert values(reopen(killed)) == EXPECTED


@pytest.mark.parametrize("name", ["recovery-point", "manifest"])
def test_without_bookkeeping_every_batch_must_be_whole(name: str) -> None:
    storage = ForgetfulStorage()
    filled(storage)
    killed = storage.killed()
    killed.remove(f"t-0/{name}")
    del content(killed, LOG_0)[-3:]
    with pytest.raises(CorruptLogError, match=LOG_0):
        reopen(killed)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_lost_indexes_and_snapshots_are_built_again(suffix: str, how: str) -> None:
    storage = ForgetfulStorage()
    log = PartitionLog.open(storage, "t-0", SMALL, TestClock())
    for index in range(12):
        guard = log.start_verification(5, index, 0, supports_epoch_bump=True)
        log.append(
            build_batch(
                [(b"k", b"aborted-" + b"x" * 60)],
                timestamp_ms=NOW,
                producer_id=5,
                producer_epoch=index,
                base_sequence=0,
                transactional=True,
            ),
            guard=guard,
        )
        log.append(batch(b"value-%02d" % index))
        log.append_marker(5, index + 1, False, 0)
    log.close()
    after = storage.power_cut(None)
    for path in [path for path in after.names if path.endswith(suffix)]:
        if how == "removed":
            after.remove(path)
        else:
            content(after, path)[1] ^= 1
    from tests.simulation.log.workload import committed_records

    again = reopen(after, SMALL)
    assert [record.value for record in committed_records(again)] == [b"value-%02d" % index for index in range(12)]
    assert again.producers()[0].producer_epoch == 12


def test_a_full_disk_is_cut_back_and_the_partition_goes_on() -> None:
    """F12."""
    storage = ForgetfulStorage()
    log = filled(storage)
    storage.free_bytes = 50
    with pytest.raises(KafkaStorageError, match="No space left") as caught:
        log.append(batch(b"too much" * 30))
    assert caught.value.code == 56 and caught.value.retriable
    assert not isinstance(caught.value, PartitionOffline)
    assert log.log_end_offset == 10
    assert len(content(storage, LOG_0)) == log.size_bytes
    assert values(log) == EXPECTED
    storage.free_bytes = None
    assert log.append(batch(b"value-10")).base_offset == 10
    log.flush()
    assert values(reopen(storage.power_cut(None))) == [*EXPECTED, b"value-10"]


def test_a_full_disk_does_not_change_what_is_known_of_a_producer() -> None:
    """F12: the retry is not a duplicate."""
    storage = ForgetfulStorage()
    log = filled(storage)
    numbered = build_batch([(b"k", b"v" * 300)], timestamp_ms=NOW, producer_id=1, producer_epoch=0, base_sequence=0)
    storage.free_bytes = 10
    with pytest.raises(KafkaStorageError):
        log.append(numbered)
    assert log.producers() == []
    storage.free_bytes = None
    assert not log.append(numbered).duplicate


def test_a_full_disk_when_a_segment_rolls_or_a_checkpoint_is_due() -> None:
    """F12: every amount of room that is left, from nothing to enough."""
    for room in range(0, 3000, 37):
        storage = ForgetfulStorage()
        config = LogConfig(retention_ms=-1, segment_bytes=500, checkpoint_bytes=300)
        log = PartitionLog.open(storage, "t-0", config, TestClock())
        storage.free_bytes = room
        acked = []
        for index in range(15):
            try:
                log.append(batch(b"value-%02d" % index + b"x" * 80))
                log.flush()
                acked.append(b"value-%02d" % index)
            except KafkaStorageError:
                assert not log.is_offline
        storage.free_bytes = None
        log.append(batch(b"finally!"))
        log.flush()
        assert values(log) == [*acked, b"finally!"], room
        assert values(reopen(storage.power_cut(None), config)) == [*acked, b"finally!"], room
        assert values(reopen(storage.killed(), config)) == [*acked, b"finally!"], room


def test_a_log_opens_on_a_full_disk_and_goes_on_when_there_is_room() -> None:
    """F12: after a crash on a full disk the broker must come up again."""
    config = LogConfig(retention_ms=-1, segment_bytes=500, checkpoint_bytes=10**9)
    storage = ForgetfulStorage()
    log = PartitionLog.open(storage, "t-0", config, TestClock())
    for index in range(10):
        log.append(batch(b"value-%02d" % index + b"x" * 80))  # rolls, never flushed: nothing is listed
    after = storage.killed()
    after.free_bytes = 0
    again = reopen(after, config)
    assert values(again) == EXPECTED
    with pytest.raises(KafkaStorageError):
        again.append(batch(b"no room"))
    after.free_bytes = None
    again.append(batch(b"value-10"))
    again.flush()
    assert values(reopen(after.power_cut(None), config)) == [*EXPECTED, b"value-10"]


def test_a_failed_fsync_takes_the_partition_offline_and_is_never_retried() -> None:
    storage = ForgetfulStorage()
    log = filled(storage)
    log.append(batch(b"doubtful"))
    storage.fail_sync = lambda path: path == LOG_0
    with pytest.raises(PartitionOffline, match="restart the broker") as caught:
        log.flush()
    assert caught.value.code == 56
    storage.fail_sync = lambda path: False
    before = storage.operations
    for call in (log.flush, lambda: log.append(batch(b"x")), lambda: log.read(0, 10), lambda: log.delete_records(1)):
        with pytest.raises(PartitionOffline):
            call()
    log.close()
    assert storage.operations == before, "nothing touches the disk any more"
    assert log.is_offline and log.high_watermark == 10
    assert values(reopen(storage.power_cut(None)))[:10] == EXPECTED


def test_a_failed_fsync_of_the_recovery_point_takes_the_partition_offline() -> None:
    storage = ForgetfulStorage()
    log = filled(storage)
    log.append(batch(b"x"))
    storage.fail_sync = lambda path: path.endswith("recovery-point")
    with pytest.raises(PartitionOffline, match="recovery point failed"):
        log.flush()
    assert log.high_watermark == 10, "nobody is told of what may not be remembered"


def test_the_recovery_point_is_synced_with_every_acknowledgement() -> None:
    storage = ForgetfulStorage()
    log = filled(storage)
    log.append(batch(b"x"))
    log.flush()
    before = storage.operations
    log.flush()
    assert storage.operations == before, "a flush of nothing costs nothing"
    after = storage.power_cut(None)
    del content(after, LOG_0)[-1:]
    with pytest.raises(CorruptLogError, match="acknowledged"):
        reopen(after)


def test_a_clean_close_scans_nothing_at_the_next_open() -> None:
    storage = ForgetfulStorage()
    filled(storage).close()

    after = storage.killed()
    before = after.operations
    log = reopen(after)
    assert values(log) == EXPECTED
    assert after.operations - before <= 4, after.history[before:]


def test_a_closed_log_answers_nothing() -> None:
    log = filled(ForgetfulStorage())
    log.close()
    with pytest.raises(PartitionOffline, match="closed"):
        log.append(batch(b"x"))


def test_restart_time_does_not_depend_on_log_size(tmp_path: Path) -> None:
    """Issue 4: only what came after the last checkpoint is read."""
    read_bytes = []
    for count in (20, 400):
        storage = CountingStorage(tmp_path / str(count))
        config = LogConfig(retention_ms=-1, segment_bytes=500_000, checkpoint_bytes=100_000)
        log = PartitionLog.open(storage, "t-0", config, TestClock())
        for _ in range(count):
            log.append(batch(os.urandom(9_000)))
            log.flush()
        storage.read = 0
        again = PartitionLog.open(storage, "t-0", config, TestClock())  # no close: as after SIGKILL
        assert again.log_end_offset == count
        read_bytes.append(storage.read)
    assert read_bytes[1] < 300_000 < 400 * 9_000
    assert read_bytes[1] < 4 * max(read_bytes[0], 50_000)


class CountingStorage(DiskStorage):
    """Counts the bytes that are read."""

    read = 0

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
        file = super().open(path, create=create)
        if not path.endswith(".log"):
            return file
        storage = self

        class Counted:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def pread(self, position: int, length: int) -> bytes:
                data = file.pread(position, length)
                storage.read += len(data)
                return data

        return Counted()


def test_append_and_flush_in_two_threads(tmp_path: Path) -> None:
    """One writer, one flusher: every offset that a flush returned is there after a reopen."""
    config = LogConfig(retention_ms=-1, segment_bytes=20_000, checkpoint_bytes=9_000)
    log = PartitionLog.open(DiskStorage(tmp_path), "t-0", config, TestClock())
    done = threading.Event()
    failures: list[BaseException] = []

    def flusher() -> None:
        try:
            while not done.is_set():
                assert log.flush() <= log.log_end_offset
                assert log.high_watermark <= log.log_end_offset
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=flusher)
    thread.start()
    for index in range(3_000):
        log.append(batch(b"value-%04d" % index))
    done.set()
    thread.join(30)
    assert not failures and not thread.is_alive()
    log.flush()
    again = PartitionLog.open(DiskStorage(tmp_path), "t-0", config, TestClock())
    assert again.log_end_offset == 3_000
    assert len(values(again)) == 3_000


def test_a_slice_stays_readable_after_its_segment_is_deleted(tmp_path: Path) -> None:
    log = PartitionLog.open(DiskStorage(tmp_path), "t-0", SMALL, TestClock())
    for index in range(10):
        log.append(batch(b"value-%02d" % index + b"x" * 80))
    log.flush()
    result = log.read(0, 1 << 20)
    expected = result.read()
    log.delete_records(9)
    assert not (tmp_path / LOG_0).exists()
    assert result.read() == expected
