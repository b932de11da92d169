"""A broker that is killed and comes back, and a leader that moves: nothing lost, nothing twice (F11, F14, F23)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from atonce.broker.embedded import Broker
from atonce.client.cluster import Cluster
from atonce.client.offsets import Committed, TopicPartition, committed
from atonce.client.produce import Sender, idempotent_producer
from atonce.client.read.fetch import fetch
from atonce.client.transaction import Transaction
from tests.contract.client.parts import admin, blobs, eventually, fresh_name, fresh_topic, read_values

EXPECTED = [f"v{n}" for n in range(400)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def killed_and_started_again(broker: Broker) -> threading.Thread:
    broker.kill()
    thread = threading.Thread(target=broker.start)
    thread.start()
    return thread


def test_a_sender_goes_on_after_the_broker_was_killed(broker: Broker) -> None:
    topic = fresh_topic(broker.servers)
    with Cluster(broker.servers) as cluster:
        producer_id, epoch = idempotent_producer(cluster)
        sender, thread = Sender(cluster, producer_id=producer_id, epoch=epoch), None
        for number, blob in enumerate(blobs(range(400))):
            if number == 17:
                thread = killed_and_started_again(broker)
            sender.send(topic, 0, blob)
        assert sender.flush()[topic, 0].records == 400
        assert thread is not None
        thread.join()
        assert read_values(cluster, topic) == EXPECTED


def test_a_reader_goes_on_after_the_broker_was_killed(broker: Broker) -> None:
    topic = fresh_topic(broker.servers)
    with Cluster(broker.servers) as cluster:
        sender = Sender(cluster)
        for blob in blobs(range(400)):
            sender.send(topic, 0, blob)
        sender.flush()
        found, thread = [], None
        for number, batch in enumerate(fetch(cluster, topic, 0, 0, 400, max_bytes=500)):
            if number == 3:
                thread = killed_and_started_again(broker)
            found += [value.decode() for value in batch.column("value").to_pylist()]
        assert thread is not None
        thread.join()
        assert found == EXPECTED


def test_a_commit_is_resolved_after_the_coordinator_was_killed(broker: Broker) -> None:
    topic, group = fresh_topic(broker.servers), fresh_name("g")
    place = TopicPartition(topic, 0)
    with Cluster(broker.servers) as cluster:
        transaction = Transaction(cluster, fresh_name("tx"), 60_000)
        transaction.init()
        for turn in range(1, 3):
            sender = Sender(
                cluster,
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                epoch=transaction.epoch,
            )
            for blob in blobs(range(50)):
                sender.send(topic, 0, blob)
            sender.flush()
            transaction.commit_offsets(group, {place: Committed(offset=turn)})
            thread = killed_and_started_again(broker)
            transaction.end(commit=True)
            thread.join()
            assert committed(cluster, group)[place].offset == turn
        transaction.wait_complete()
        assert len(read_values(cluster, topic)) == 100


@pytest.mark.soak
def test_a_leader_of_three_is_killed_while_we_write_and_read() -> None:
    from atonce.local.servers.kafka import ApacheKafka

    with ApacheKafka(nodes=3) as kafka, Cluster(kafka.servers) as cluster:
        topic = fresh_name("topic")
        new = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
        admin(kafka.servers).create_topics([new])[topic].result(30)
        found = eventually(lambda: cluster.topic(topic, refresh=True), 30)
        transaction = Transaction(cluster, fresh_name("tx"), 60_000)
        transaction.init()
        sender = Sender(
            cluster,
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
        )
        for number, blob in enumerate(blobs(range(400))):
            if number == 17:
                kafka.kill(found.partitions[0].leader)
            sender.send(topic, 0, blob)
        sender.flush()
        transaction.end(commit=True)
        transaction.wait_complete()
        kafka.restart(found.partitions[0].leader)
        read: list[str] = []
        for number, batch in enumerate(fetch(cluster, topic, 0, 0, 400, max_bytes=500)):
            if number == 3:
                kafka.kill(cluster.leader(topic, 0))
            read += [value.decode() for value in batch.column("value").to_pylist()]
        assert read == EXPECTED
