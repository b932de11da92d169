"""Answers that say less than was asked, and quotas: each is asked again, none is taken for "no" (F31)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from atonce.client.cluster import Cluster
from atonce.client.errors import BrokerRefused
from atonce.client.offsets import LATEST, Committed, TopicPartition, commit, committed, epoch_ends, list_offsets
from atonce.client.operate import admin
from atonce.client.operate.hanging import describe_transaction
from atonce.client.operate.members import group_members
from atonce.client.produce import Sender, idempotent_producer
from atonce.client.read.fetch import fetch_all
from atonce.client.read.reader import Reader
from atonce.client.transaction import Transaction
from atonce.client.wire import Wire
from atonce.records.encode import encode
from atonce.verify.wire.decode import Request
from atonce.verify.wire.fabricate import throttled, without
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.client.parts import blobs, fresh_name, fresh_topic, quota


@pytest.fixture
def proxy(kafka_servers: str) -> Iterator[Proxy]:
    with Proxy(kafka_servers) as made:
        yield made


@pytest.fixture
def cluster(proxy: Proxy) -> Iterator[Cluster]:
    with Cluster(proxy.servers) as made:
        yield made


def send(cluster: Cluster, topic: str, parts: list[Any], **options: Any) -> int:
    sender = Sender(cluster, **options)
    for blob in parts:
        sender.send(topic, 0, blob)
    sent = sender.flush()[topic, 0].records
    sender.close()
    return sent


def offsets_of(cluster: Cluster, topic: str, end: int) -> list[int]:
    return [o for batch in fetch_all(cluster, [(topic, 0, 0, end)]) for o in batch.column("offset").to_pylist()]


def look_up(cluster: Cluster, topic: str) -> None:
    found = cluster.topic(topic, refresh=True)
    assert found is not None and len(found.partitions) == 1


def find_coordinator(cluster: Cluster, topic: str) -> None:
    assert cluster.coordinator(fresh_name("group")) in cluster.nodes


def list_ends(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    assert list_offsets(cluster, {place: LATEST}) == {place: 20}


def list_epochs(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    assert epoch_ends(cluster, {place: 0}) == {place: (0, 20)}


def commit_and_read(cluster: Cluster, topic: str) -> None:
    place, group = TopicPartition(topic, 0), fresh_name("group")
    commit(cluster, group, {place: Committed(offset=7)})
    assert committed(cluster, group, [place])[place].offset == 7
    assert committed(cluster, group)[place].offset == 7


def describe_members(cluster: Cluster, topic: str) -> None:
    group = fresh_name("group")
    commit(cluster, group, {TopicPartition(topic, 0): Committed(offset=7)})
    assert group_members(cluster, group, "classic") == []


def commit_in_a_transaction(cluster: Cluster, topic: str) -> None:
    place, group = TopicPartition(topic, 0), fresh_name("group")
    transaction = Transaction(cluster, fresh_name("tx"), 60_000)
    transaction.init()
    transaction.commit_offsets(group, {place: Committed(offset=3)})
    transaction.end(commit=True)
    transaction.wait_complete()
    assert describe_transaction(cluster, transaction.transactional_id).state == "CompleteCommit"
    assert committed(cluster, group)[place].offset == 3


def read_settings(cluster: Cluster, topic: str) -> None:
    assert admin.topic_settings(cluster, topic)["cleanup.policy"] == "delete"


def list_brokers(cluster: Cluster, topic: str) -> None:
    assert len(admin.brokers(cluster)) == 1


def create(cluster: Cluster, topic: str) -> None:
    assert admin.create_topic(cluster, fresh_name("topic"), 1, 1) is True


def delete(cluster: Cluster, topic: str) -> None:
    admin.delete_topic(cluster, topic)


def produce(cluster: Cluster, topic: str) -> None:
    producer_id, epoch = idempotent_producer(cluster)
    assert send(cluster, topic, blobs(range(20)), producer_id=producer_id, epoch=epoch) == 20
    assert list_offsets(cluster, {TopicPartition(topic, 0): LATEST}) == {TopicPartition(topic, 0): 40}


def read(cluster: Cluster, topic: str) -> None:
    assert offsets_of(cluster, topic, 20) == list(range(20))


SILENCE: list[tuple[str, str, Callable[[Cluster, str], None]]] = [
    ("metadata", "topics", look_up),
    ("find_coordinator", "coordinators", find_coordinator),
    ("list_offsets", "topics", list_ends),
    ("offset_for_leader_epoch", "topics", list_epochs),
    ("offset_fetch", "groups", commit_and_read),
    ("offset_commit", "topics", commit_and_read),
    ("describe_groups", "groups", describe_members),
    ("txn_offset_commit", "topics", commit_in_a_transaction),
    ("describe_transactions", "transaction_states", commit_in_a_transaction),
    ("describe_configs", "results", read_settings),
    ("describe_cluster", "brokers", list_brokers),
    ("create_topics", "topics", create),
    ("delete_topics", "responses", delete),
    ("produce", "responses", produce),
    ("fetch", "responses", read),
]


@pytest.mark.parametrize(("api", "field", "act"), SILENCE, ids=[api for api, _, _ in SILENCE])
def test_silence_is_asked_again(
    proxy: Proxy, cluster: Cluster, kafka_servers: str, api: str, field: str, act: Callable[[Cluster, str], None]
) -> None:
    topic = fresh_topic(kafka_servers)
    send(cluster, topic, blobs(range(20)))
    rule = Rule(apis=frozenset({api}), action=Action.CHANGE, change=without(field), times=2)
    proxy.add(rule)
    act(cluster, topic)
    rule.wait(1)


def test_a_throttled_fetch_waits_as_long_as_it_is_told_and_is_asked_again(
    proxy: Proxy, cluster: Cluster, kafka_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic(kafka_servers)
    send(cluster, topic, blobs(range(300)))
    waited: list[float] = []
    before = Wire.send

    def noting(wire: Wire, request: Any, splice: Any = None) -> None:
        waited.append(wire.throttled_s)
        before(wire, request, splice)

    monkeypatch.setattr(Wire, "send", noting)
    rule = Rule(apis=frozenset({"fetch"}), action=Action.CHANGE, change=throttled(200), nth=2, times=2)
    proxy.add(rule)
    found = [
        o for b in fetch_all(cluster, [(topic, 0, 0, 300)], max_bytes=2_000) for o in b.column("offset").to_pylist()
    ]
    rule.wait(5)
    assert found == list(range(300))
    assert len([seconds for seconds in waited if seconds > 0]) == 2


# Real quotas ------------------------------------------------------------------------------------------------------


def large(count: int) -> list[Any]:
    """Batches of 20 KB each."""
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 10_000] * (2 * count))})
    parts = [rows.slice(start, 2) for start in range(0, 2 * count, 2)]
    return [blob for part in parts for _, _, blob in encode(part, np.zeros(2, np.int32), 1)]


def test_a_consumer_quota_slows_the_reader_down_and_loses_nothing(
    tiered_kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, client_id, times = fresh_topic(tiered_kafka), fresh_name("reader"), 0
    before = Reader._throttled

    def counting(reader: Reader, throttle_ms: int, where: str) -> None:
        nonlocal times
        times += 1
        before(reader, throttle_ms, where)

    monkeypatch.setattr(Reader, "_throttled", counting)
    with Cluster(tiered_kafka) as plain, Cluster(tiered_kafka, {"client.id": client_id}) as cluster:
        send(plain, topic, large(15))
        quota(plain, client_id, "consumer_byte_rate", 100_000)
        found = offsets_of(cluster, topic, 30)
    assert found == list(range(30))
    assert times > 0


def test_a_producer_quota_slows_the_sender_down_and_loses_nothing(tiered_kafka: str) -> None:
    topic, client_id = fresh_topic(tiered_kafka), fresh_name("sender")
    with Cluster(tiered_kafka) as plain, Cluster(tiered_kafka, {"client.id": client_id}) as cluster:
        quota(plain, client_id, "producer_byte_rate", 100_000)
        producer_id, epoch = idempotent_producer(cluster)
        assert send(cluster, topic, large(15), producer_id=producer_id, epoch=epoch) == 30
        assert offsets_of(plain, topic, 30) == list(range(30))


def test_a_request_quota_slows_everything_down_and_nothing_fails(
    tiered_kafka: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, client_id = fresh_topic(tiered_kafka), fresh_name("asker")
    place = TopicPartition(topic, 0)
    with Cluster(tiered_kafka) as plain, Cluster(tiered_kafka, {"client.id": client_id}) as cluster:
        send(plain, topic, blobs(range(20)))
        quota(plain, client_id, "request_percentage", 0.01)
        for _ in range(2):
            assert admin.topic_settings(cluster, topic)
            assert list_offsets(cluster, {place: LATEST}) == {place: 20}
    assert "throttled by broker" in caplog.text


def sent_elsewhere(request: Request, body: Any) -> Any:
    """A leader that wants its readers to go to a replica near them: no records, no error, and the true bound."""

    def nothing(part: Any) -> Any:
        return replace(part, records=None, preferred_read_replica=2)

    topics = (replace(topic, partitions=tuple(map(nothing, topic.partitions))) for topic in body.responses)
    return replace(body, responses=tuple(topics))


def test_a_leader_that_sends_readers_elsewhere_is_named_and_its_emptiness_proves_nothing(
    proxy: Proxy, cluster: Cluster, kafka_servers: str
) -> None:
    topic = fresh_topic(kafka_servers)
    send(cluster, topic, blobs(range(20)))
    rule = Rule(apis=frozenset({"fetch"}), action=Action.CHANGE, change=sent_elsewhere, times=1000)
    proxy.add(rule)
    with pytest.raises(BrokerRefused, match=rf"{topic}/0 at offset 0: the leader sends .* node 2 .*Next: .*selector"):
        offsets_of(cluster, topic, 20)
    rule.wait(5)
