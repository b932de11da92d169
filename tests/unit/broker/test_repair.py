"""Journals that hold what nobody can read: a start passes over and names it, unless it hides what was acknowledged."""

from __future__ import annotations

import asyncio
import logging
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atonce.broker.broker import BrokerState
from atonce.broker.metrics import Metrics
from atonce.broker.repair import look, repair_data
from atonce.broker.settings import Settings
from atonce.coordinator.decision import ProducerIdAndEpoch, TopicPartition
from atonce.coordinator.groups.offset_requests import OffsetToCommit
from atonce.errors import CorruptLogError
from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin
from atonce.log.storage import DiskStorage
from atonce.records.batch import HEADER_SIZE, assemble, read_header
from atonce.records.record import build_batch

ORDERS = TopicPartition("orders", 0)


def run(data: Path, work: Callable[[BrokerState], object]) -> object:
    async def life() -> object:
        broker = BrokerState(data, Settings(static={"num.partitions": 1}), Metrics())
        try:
            await broker.start()
            found = work(broker)
            return await found if asyncio.iscoroutine(found) else found
        finally:
            await broker.stop()

    return asyncio.run(life())


def commit(offset: int, group: str = "g") -> Callable[[BrokerState], object]:
    async def work(broker: BrokerState) -> None:
        groups = broker.coordination.groups
        wanted = [OffsetToCommit(ORDERS, offset, -1, "")]
        await broker.coordination.group(lambda now: groups.commit_offsets(now, group, "", None, -1, wanted))

    return work


def committed(data: Path, group: str = "g") -> int | None:
    def work(broker: BrokerState) -> int | None:
        decision = broker.coordination.groups.fetch_offsets(group, [ORDERS], require_stable=False)
        return decision.answer[1][ORDERS].committed.offset  # type: ignore[union-attr]

    return run(data, work)  # type: ignore[return-value]


def new_producer(transactional_id: str | None = None) -> Callable[[BrokerState], object]:
    async def work(broker: BrokerState) -> ProducerIdAndEpoch:
        transactions = broker.coordination.transactions
        answer = await broker.coordination.transaction(
            lambda now: transactions.init_producer_id(now, transactional_id, 60_000, None)
        )
        return ProducerIdAndEpoch(answer.producer_id, answer.epoch)

    return work


def write(data: Path, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """What a client could do to a journal before writes there were refused."""
    write_batch(data, topic, build_batch(list(records), timestamp_ms=1))


def write_batch(data: Path, topic: str, batch: bytes) -> None:
    log = PartitionLog.open(DiskStorage(data), f"logs/{topic}-0", LogConfig(), lambda: 1_000)
    log.append(batch, origin=AppendOrigin.COORDINATOR)
    log.flush()
    log.close()


def key_of(offset_key_group: str) -> bytes:
    group = offset_key_group.encode()
    return struct.pack(">hh", 1, len(group)) + group + struct.pack(">h", 6) + b"orders" + struct.pack(">i", 0)


def transaction_key(transactional_id: str) -> bytes:
    return struct.pack(">hh", 0, len(transactional_id)) + transactional_id.encode()


GARBAGE = [
    (None, b"x"),
    (b"", b"x"),
    (b"\0", None),
    (b"\0\1\0\x7fgroup", b"x"),
    (b"\0\1\xff\xff", b"\0\3"),
    (b"\x7f\x7fz", b""),
]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_records_that_are_nobodys_state_are_passed_over_and_named(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, commit(40))
    write(tmp_path, topic, *GARBAGE)
    with caplog.at_level(logging.WARNING):
        assert committed(tmp_path) == 40
    assert f"passed over a record that cannot be read: {topic} at offset" in caplog.text
    found = look(tmp_path)
    assert not found.is_needed and found.passed_over


def test_batches_that_do_not_add_up_are_passed_over_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, commit(40))
    good = build_batch([(b"k", b"v")] * 3, timestamp_ms=1)
    header = read_header(good)
    write_batch(tmp_path, "__consumer_offsets", assemble(header, b"\xff" * 40))
    write_batch(tmp_path, "__consumer_offsets", assemble(header._replace(attributes=4), good[HEADER_SIZE:]))
    with caplog.at_level(logging.WARNING):
        assert committed(tmp_path) == 40
    assert caplog.text.count("passed over") == 2


def test_a_value_that_hides_an_acknowledged_offset_is_refused_and_repaired(tmp_path: Path) -> None:
    run(tmp_path, commit(40))
    run(tmp_path, commit(7, group="other"))
    write(tmp_path, "__consumer_offsets", (key_of("g"), b"\0\3garbage"))
    with pytest.raises(CorruptLogError, match=r"offset of group 'g' for orders-0.*--repair"):
        committed(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    shown, kept = repair_data(tmp_path, do_it=False)
    assert kept is None
    assert {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"
    } == before
    assert any("offset of group 'g' for orders-0 goes back to its record at offset 0" in line for line in shown.lines())
    _, kept = repair_data(tmp_path, do_it=True)
    assert kept is not None
    assert committed(tmp_path) == 40 and committed(tmp_path, "other") == 7
    assert not look(tmp_path).is_needed


def test_a_value_that_was_written_over_since_is_passed_over(tmp_path: Path) -> None:
    run(tmp_path, commit(40))
    write(tmp_path, "__consumer_offsets", (key_of("g"), b"\0\3garbage"))
    write(
        tmp_path,
        "__consumer_offsets",
        (key_of("g"), struct.pack(">hqih", 3, 41, -1, 0) + struct.pack(">q", 1)),
    )
    assert committed(tmp_path) == 41


def test_a_group_that_cannot_be_read_keeps_its_offsets(tmp_path: Path) -> None:
    run(tmp_path, commit(40))
    write(tmp_path, "__consumer_offsets", (struct.pack(">hh", 2, 1) + b"g", b"\0\3\0"))
    with pytest.raises(CorruptLogError, match="group 'g'"):
        committed(tmp_path)
    repair_data(tmp_path, do_it=True)
    assert committed(tmp_path) == 40
    assert run(tmp_path, lambda broker: [one.group_id for one in broker.coordination.groups.list_groups()]) == ["g"]


def test_a_transactional_id_goes_back_to_its_last_record(tmp_path: Path) -> None:
    first = run(tmp_path, new_producer("copy"))
    write(tmp_path, "__transaction_state", (transaction_key("copy"), b"\0\1\0"))
    with pytest.raises(CorruptLogError, match="transactional id 'copy'"):
        run(tmp_path, new_producer("copy"))
    repair_data(tmp_path, do_it=True)
    assert run(tmp_path, new_producer("copy")) == (first.producer_id, first.epoch + 1)  # type: ignore[attr-defined]


def test_a_transactional_id_is_forgotten_where_a_log_has_seen_a_later_epoch(tmp_path: Path) -> None:
    """Going back, its next producer would get an epoch that was used, and its records could pass for old ones."""

    async def produce(broker: BrokerState) -> ProducerIdAndEpoch:
        topic = await broker.topics.create("orders", 1, {})
        producer = await new_producer("copy")(broker)  # type: ignore[misc]
        later = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 5)
        batch = build_batch([(b"k", b"v")], timestamp_ms=1, producer_id=later.producer_id, producer_epoch=later.epoch)
        topic.partitions[0].append(batch, origin=AppendOrigin.COORDINATOR)
        await topic.partitions[0].durable(0)
        return producer

    first = run(tmp_path, produce)
    write(tmp_path, "__transaction_state", (transaction_key("copy"), b"\0\1\0"))
    shown, _ = repair_data(tmp_path, do_it=True)
    assert any("transactional id 'copy' is forgotten: a log has seen epoch 5" in line for line in shown.lines())
    now = run(tmp_path, new_producer("copy"))
    assert now.producer_id > first.producer_id + 999_999 and now.epoch == 0  # type: ignore[attr-defined]


def test_no_producer_id_is_handed_out_twice_when_their_record_is_lost(tmp_path: Path) -> None:
    first = run(tmp_path, new_producer())
    write(tmp_path, "__transaction_state", (struct.pack(">h", 1000), b"\0\0\0"))
    with pytest.raises(CorruptLogError, match="producer ids that were handed out"):
        run(tmp_path, new_producer())
    repair_data(tmp_path, do_it=True)
    assert run(tmp_path, new_producer()).producer_id > first.producer_id + 999_999  # type: ignore[attr-defined]


def test_damaged_and_missing_logs_are_repaired_together(tmp_path: Path) -> None:
    async def fill(broker: BrokerState) -> None:
        for name in ("orders", "gone"):
            topic = await broker.topics.create(name, 1, {})
            for _ in range(3):
                result = topic.partitions[0].append(build_batch([(b"k", b"v" * 50)], timestamp_ms=1))
                await topic.partitions[0].durable(result.last_offset)

    run(tmp_path, fill)
    path = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for left in sorted((tmp_path / "logs" / "gone-0").iterdir()):
        left.unlink()
    (tmp_path / "logs" / "gone-0").rmdir()
    with pytest.raises(CorruptLogError, match="gone-0 is missing"):
        run(tmp_path, lambda broker: None)

    shown, kept = repair_data(tmp_path, do_it=True)
    text = "\n".join(shown.lines())
    assert "logs/gone-0: everything" in text and "(offset 0): batch of" in text
    assert kept is not None and (kept / "logs" / "orders-0" / path.name).read_bytes() == data

    def ends(broker: BrokerState) -> list[tuple[str, int, int]]:
        logs = [(p.topic, p.log) for p in broker.topics.partitions() if not p.topic.startswith("__")]
        return sorted((topic, log.log_start_offset, log.log_end_offset) for topic, log in logs)

    assert run(tmp_path, ends) == [("gone", 0, 0), ("orders", 0, 3)]


def test_a_directory_without_its_list_of_topics_is_not_repaired(tmp_path: Path) -> None:
    run(tmp_path, commit(1))
    (tmp_path / "topics.json").unlink()
    with pytest.raises(CorruptLogError, match=r"topics\.json is not there"):
        repair_data(tmp_path, do_it=True)


def test_the_command_shows_first_and_repairs_when_told(tmp_path: Path) -> None:
    run(tmp_path, commit(40))
    write(tmp_path, "__consumer_offsets", (key_of("g"), b"\0\3garbage"))
    command = [sys.executable, "-m", "atonce.cli.main", "broker", "--data", str(tmp_path), "--repair"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 1 and "Nothing was changed" in shown.stdout and not shown.stderr
    done = subprocess.run([*command, "--yes"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "start the broker again" in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0 and "Nothing has to be repaired." in again.stdout
    assert committed(tmp_path) == 40
