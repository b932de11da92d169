"""A range is done only on positive proof: emptiness proves nothing, and a compacted end can be proved (F31)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from atonce.client import offsets
from atonce.client.cluster import Cluster
from atonce.client.errors import TryAgain
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, earliest_local, list_offsets, listed
from atonce.client.produce import Sender
from atonce.client.read.fetch import fetch_all
from atonce.client.read.ranges import Account, Wanted
from atonce.client.read.reader import Reader
from atonce.client.read.request import Question, answered
from atonce.client.transaction import Transaction
from atonce.records.columns import COUNT, locate
from atonce.records.encode import encode
from atonce.verify.wire.fabricate import empty_fetch, without
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.client.parts import admin, blobs, eventually, fresh_name, fresh_topic


def send(cluster: Cluster, topic: str, parts: list[Any], **options: Any) -> None:
    sender = Sender(cluster, **options)
    for blob in parts:
        sender.send(topic, 0, blob)
    sender.flush()
    sender.close()


def read(cluster: Cluster, topic: str, start: int, end: int, **options: Any) -> tuple[list[int], Account]:
    accounts: list[Account] = []
    batches = fetch_all(cluster, [(topic, 0, start, end)], report=accounts.append, **options)
    found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    (account,) = accounts
    return found, account


@pytest.fixture
def proxied(kafka_servers: str) -> Iterator[tuple[Proxy, Cluster, str]]:
    """A proxy, a cluster behind it, and a topic of 3,000 records in 300 batches."""
    with Proxy(kafka_servers) as proxy, Cluster(proxy.servers) as cluster:
        topic = fresh_topic(kafka_servers)
        send(cluster, topic, blobs(range(3000)))
        yield proxy, cluster, topic


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_empty_answers_hide_is_asked_for_again(proxied: tuple[Proxy, Cluster, str], times: int) -> None:
    proxy, cluster, topic = proxied
    rule = Rule(apis=frozenset({"fetch"}), action=Action.CHANGE, change=empty_fetch, nth=2, times=times, topic=topic)
    proxy.add(rule)
    found, account = read(cluster, topic, 0, 3000, max_bytes=20_000)
    rule.wait(5)
    assert found == list(range(3000))
    assert (account.records, account.missing) == (3000, 0)


def test_empty_answers_after_which_the_leader_cannot_be_asked_prove_nothing(
    proxied: tuple[Proxy, Cluster, str],
) -> None:
    """Three empty answers are a proof only together with where the local log begins."""
    proxy, cluster, topic = proxied
    proxy.add(Rule(apis=frozenset({"fetch"}), action=Action.CHANGE, change=empty_fetch, nth=2, times=8, topic=topic))
    unclear = Rule(apis=frozenset({"list_offsets"}), action=Action.CHANGE, change=without("topics"), times=100)
    proxy.add(unclear)
    found, _ = read(cluster, topic, 0, 3000, max_bytes=20_000)
    unclear.wait(5)
    assert found == list(range(3000))


def test_an_answer_without_the_partition_is_asked_again(proxied: tuple[Proxy, Cluster, str]) -> None:
    proxy, cluster, topic = proxied
    rule = Rule(apis=frozenset({"fetch"}), action=Action.CHANGE, change=without("responses"), nth=2, times=2)
    proxy.add(rule)
    found, _ = read(cluster, topic, 0, 3000, max_bytes=20_000)
    rule.wait(5)
    assert found == list(range(3000))


def keyless(count: int) -> list[Any]:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x"] * count)})
    return [blob for _, _, blob in encode(rows, np.zeros(count, np.int32), 1)]


def raw_answer(cluster: Cluster, topic: str, position: int) -> Any:
    question = Question(topic=topic, partition=0, position=position, max_bytes=1 << 20, max_wait_ms=0)
    return answered(cluster.call(question.request(12), cluster.leader(topic, 0)), 0)


@pytest.fixture
def gap_at_the_end(cleaning_servers: str) -> Iterator[tuple[Cluster, str]]:
    """50 records with keys, then 50 offsets whose records the cleaner removed; an open transaction stands behind.

    The cleaner never touches the segment that is written to, so something must stand behind. It drops records without
    a key, which only a topic that was not compacted before can hold.
    """
    topic = fresh_topic(cleaning_servers, **{"segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"})
    with Cluster(cleaning_servers) as cluster:
        send(cluster, topic, [*blobs(range(50)), *keyless(50)])
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)],
        )
        admin(cleaning_servers).incremental_alter_configs([resource])[resource].result(30)
        transaction = Transaction(cluster, fresh_name("tx"), 60_000)
        transaction.init()
        ids = {"producer_id": transaction.producer_id, "epoch": transaction.epoch}
        send(cluster, topic, blobs([1]), transactional_id=transaction.transactional_id, **ids)
        assert list_offsets(cluster, {TopicPartition(topic, 0): LATEST})[TopicPartition(topic, 0)] == 100
        eventually(lambda: not locate(raw_answer(cluster, topic, 50).records or b"").table[:, COUNT].any(), 60)
        with Proxy(cleaning_servers) as proxy, Cluster(proxy.servers) as through:
            # Apache Kafka 4 leaves an empty batch behind the last offset it cleaned, which older ones do not.
            proxy.add(
                Rule(
                    apis=frozenset({"fetch"}),
                    action=Action.CHANGE,
                    change=empty_fetch,
                    times=1_000,
                    only_if=lambda _, facts: any(offset >= 50 for _, _, offset in facts.offsets),
                )
            )
            yield through, topic
        transaction.end(commit=False)


def test_a_compacted_topic_is_read_to_its_end(cleaning_servers: str, gap_at_the_end: tuple[Cluster, str]) -> None:
    with Cluster(cleaning_servers) as cluster:
        found, account = read(cluster, gap_at_the_end[1], 0, 100)
    assert found == list(range(50))
    assert (account.records, account.missing, account.epoch) == (50, 50, 0)


@pytest.mark.parametrize("start", [50, 70])
def test_a_gap_at_the_very_end_is_proved_by_the_leader(gap_at_the_end: tuple[Cluster, str], start: int) -> None:
    found, account = read(*gap_at_the_end, start, 100)
    assert found == []
    assert (account.missing, account.epoch) == (100 - start, -1)
    wanted = Wanted(gap_at_the_end[1], 0, start, 100, epoch=0)
    accounts: list[Account] = []
    assert list(fetch_all(gap_at_the_end[0], [wanted], report=accounts.append)) == []
    assert accounts[0].epoch == 0, "the leader says that the gap belongs to the epoch before it"


def test_a_broker_that_cannot_tell_what_is_local_is_asked_on_until_the_time_is_up(
    gap_at_the_end: tuple[Cluster, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, topic = gap_at_the_end
    monkeypatch.setattr(offsets, "EARLIEST_LOCAL_SINCE", 1_000)
    with pytest.raises(
        TryAgain, match=r"nothing to read at offset 50 .* batch ends at 100 .*end is 100.*earliest local"
    ):
        read(cluster, topic, 50, 100, timeout_ms=1_500)


def test_both_brokers_tell_the_earliest_local_offset_and_that_nothing_is_tiered(kafka_servers: str) -> None:
    topic = fresh_topic(kafka_servers)
    place = TopicPartition(topic, 0)
    with Cluster(kafka_servers) as cluster:
        send(cluster, topic, blobs(range(30)))
        assert earliest_local(cluster, place, 0) == 0
        with pytest.raises(TryAgain, match="UNKNOWN_LEADER_EPOCH"):
            earliest_local(cluster, place, 7)
        told = {wanted: listed(cluster, {place: wanted})[place] for wanted in (EARLIEST, -4, LATEST, -5)}
    assert told == {EARLIEST: (0, 0), -4: (0, 0), LATEST: (30, 0), -5: (-1, -1)}


@pytest.fixture(scope="module")
def tiered_topic(tiered_kafka: str) -> str:
    """3,000 records of which all but the newest segment lie in remote storage only."""
    topic = fresh_topic(
        tiered_kafka, **{"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
    )
    place = TopicPartition(topic, 0)
    with Cluster(tiered_kafka) as cluster:
        rows = pa.RecordBatch.from_pydict({"value": pa.array([f"{n} ".encode() + b"x" * 1200 for n in range(3000)])})
        parts = [rows.slice(start, 50) for start in range(0, 3000, 50)]
        send(cluster, topic, [blob for part in parts for _, _, blob in encode(part, np.zeros(50, np.int32), 1)])
        eventually(lambda: list_offsets(cluster, {place: -4})[place] > 2000, 60)
    return topic


def test_tiered_storage_that_answers_nothing_for_a_while_is_read_whole(tiered_kafka: str, tiered_topic: str) -> None:
    """Its quota for remote reads lets the broker answer "no records, no error, no throttling" for seconds."""
    with Cluster(tiered_kafka) as cluster:
        assert raw_answer(cluster, tiered_topic, 0).records
        empty = raw_answer(cluster, tiered_topic, 0)
        assert (empty.error_code, empty.last_stable_offset, empty.records or b"") == (0, 3000, b"")
        found, account = read(cluster, tiered_topic, 0, 3000)
    assert found == list(range(3000))
    assert (account.records, account.missing) == (3000, 0)


@contextmanager
def standing_still(segment: Path) -> Iterator[Callable[[], None]]:
    """Whoever opens this file waits until it is released: a pipe stands in its place that nobody writes to."""
    aside, pipe = segment.with_suffix(".aside"), segment.with_suffix(".pipe")
    os.mkfifo(pipe)
    segment.rename(aside)
    os.link(pipe, segment)

    def release() -> None:
        if aside.exists():
            aside.rename(segment)

    try:
        yield release
    finally:
        release()
        os.close(os.open(pipe, os.O_RDWR))  # those that still wait at the pipe go on
        pipe.unlink()


def test_a_remote_read_that_takes_longer_than_the_broker_waits_for_it_is_asked_again(
    tiered_kafka: str, tiered_topic: str, remote_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [path for path in remote_directory.rglob("*.log") if tiered_topic in path.parent.name]
    empty, before = 0, Reader._nothing_left
    with Cluster(tiered_kafka) as cluster, standing_still(min(segments, key=lambda path: path.name)) as release:

        def noting(reader: Reader, answer: Any) -> bool:
            nonlocal empty
            empty += 1
            if empty == 2:
                release()
            return before(reader, answer)

        monkeypatch.setattr(Reader, "_nothing_left", noting)
        found, account = read(cluster, tiered_topic, 0, 3000)
    assert found == list(range(3000))
    assert (account.records, account.missing) == (3000, 0)
    assert empty >= 2
