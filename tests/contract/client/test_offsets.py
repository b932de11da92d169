"""Offsets of logs and of groups, on both brokers (S3, S21)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from atonce.client.cluster import Cluster
from atonce.client.errors import TopicMissing
from atonce.client.offsets import EARLIEST, LATEST, Committed, TopicPartition, commit, committed, list_offsets
from atonce.client.produce import Sender
from atonce.client.transaction import Transaction
from atonce.errors import UsageError
from atonce.records.encode import encode
from tests.contract.client.parts import LossyCluster, blobs, fresh_name, fresh_topic


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[LossyCluster]:
    with LossyCluster(kafka_servers) as made:
        yield made


def test_a_log_begins_and_ends_where_it_does(cluster: Cluster) -> None:
    topic = fresh_topic(cluster.servers, partitions=2)
    sender = Sender(cluster)
    for blob in blobs(range(30)):
        sender.send(topic, 1, blob)
    sender.flush()
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert list_offsets(cluster, dict.fromkeys(places, EARLIEST)) == dict.fromkeys(places, 0)
    assert list_offsets(cluster, dict.fromkeys(places, LATEST)) == {places[0]: 0, places[1]: 30}


def test_a_timestamp_finds_the_first_record_as_young(cluster: Cluster) -> None:
    topic, now = fresh_topic(cluster.servers), time.time_ns() // 1_000_000
    rows = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"a", b"b", b"c"]), "timestamp": pa.array([now, now + 1000, now + 2000])}
    )
    sender = Sender(cluster)
    for _, _, blob in encode(rows, [0, 0, 0], 1):
        sender.send(topic, 0, blob)
    sender.flush()
    place = TopicPartition(topic, 0)
    assert list_offsets(cluster, {place: now + 500})[place] == 1
    assert list_offsets(cluster, {place: now + 5000})[place] == -1


def test_read_committed_ends_before_an_open_transaction(cluster: Cluster) -> None:
    topic = fresh_topic(cluster.servers)
    transaction = Transaction(cluster, fresh_name("tx"), 60_000)
    transaction.init()
    sender = Sender(
        cluster,
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
    )
    sender.send(topic, 0, blobs(range(5))[0])
    sender.flush()
    place = TopicPartition(topic, 0)
    assert list_offsets(cluster, {place: LATEST})[place] == 0
    assert list_offsets(cluster, {place: LATEST}, "read_uncommitted")[place] == 5
    transaction.end(commit=False)
    transaction.wait_complete()
    assert list_offsets(cluster, {place: LATEST})[place] == 6  # the marker takes an offset


def test_a_missing_topic_is_named() -> None:
    with pytest.raises(UsageError, match="'read_sometimes' is not one of: read_uncommitted, read_committed"):
        list_offsets(None, {}, "read_sometimes")  # type: ignore[arg-type]


def test_offsets_of_a_missing_topic_are_refused_by_name(cluster: Cluster) -> None:
    name = fresh_name("nobody")
    with pytest.raises(TopicMissing, match=name):
        list_offsets(cluster, {TopicPartition(name, 0): LATEST})


def test_groups_keep_offsets_and_metadata_independently(cluster: Cluster) -> None:
    topic = fresh_topic(cluster.servers, partitions=2)
    one, other, place = fresh_name("g"), fresh_name("g"), TopicPartition(topic, 1)
    assert committed(cluster, one) == {}
    commit(cluster, one, {place: Committed(offset=7, metadata="token")})
    commit(cluster, other, {place: Committed(offset=9)})
    assert committed(cluster, one) == {place: Committed(offset=7, metadata="token")}
    assert committed(cluster, one, [TopicPartition(topic, 0), place]) == {place: Committed(offset=7, metadata="token")}
    assert committed(cluster, other)[place].offset == 9


def test_a_commit_whose_answer_is_lost_is_repeated(cluster: LossyCluster) -> None:
    topic, group = fresh_topic(cluster.servers), fresh_name("g")
    place = TopicPartition(topic, 0)
    cluster.lose_call_answer = "OffsetCommit"
    commit(cluster, group, {place: Committed(offset=3)})
    assert cluster.fired == 1
    assert committed(cluster, group)[place].offset == 3
