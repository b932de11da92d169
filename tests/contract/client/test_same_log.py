"""The input is the same log as before: topic ids and leader epochs, on both brokers (F32)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from atonce.broker.embedded import Broker
from atonce.client import identity
from atonce.client.cluster import Cluster
from atonce.client.offsets import LATEST, TopicPartition, epoch_ends, list_offsets, listed
from atonce.client.operate.admin import delete_topic
from atonce.client.produce import Sender
from atonce.client.read import reader
from atonce.client.read.fetch import fetch_all
from atonce.client.read.ranges import Account, Wanted, seams
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import DataLossError
from atonce.verify.wire.fabricate import failed_fetch
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.client.parts import admin, blobs, eventually, fresh_topic

UNKNOWN_TOPIC_ID = 100


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    sender = Sender(cluster)
    for blob in blobs(numbers):
        sender.send(topic, 0, blob)
    sender.flush()
    sender.close()


def read(cluster: Cluster, wanted: Wanted, **options: bool) -> tuple[list[str], Account]:
    accounts: list[Account] = []
    batches = fetch_all(cluster, [wanted], report=accounts.append, **options)  # type: ignore[arg-type]
    found = [value.decode() for batch in batches for value in batch.column("value").to_pylist()]
    return found, accounts[0]


def topic_id(cluster: Cluster, topic: str) -> str:
    found = eventually(lambda: cluster.topic(topic, refresh=True))
    return str(found.id)


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[Cluster]:
    with Cluster(kafka_servers) as made:
        yield made


def test_a_range_is_read_by_topic_id_and_epoch(cluster: Cluster) -> None:
    topic = fresh_topic(cluster.servers)
    send(cluster, topic, range(100))
    found, account = read(cluster, Wanted(topic, 0, 10, 90, topic_id(cluster, topic), 0))
    assert found == [f"v{n}" for n in range(10, 90)]
    assert (account.records, account.epoch) == (80, 0)


def test_a_topic_made_again_and_refilled_is_refused_with_both_ids(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "PATIENCE_MS", 300)
    topic = fresh_topic(cluster.servers)
    send(cluster, topic, range(50))
    before = topic_id(cluster, topic)
    delete_topic(cluster, topic)
    eventually(lambda: cluster.topic(topic, refresh=True) is None)
    admin(cluster.servers).create_topics([_again(topic)])[topic].result(30)
    after = topic_id(cluster, topic)
    send(cluster, topic, range(1000, 1200))
    with pytest.raises(DataLossError, match=rf"{topic}/0: offset 50 .* id {before}, .* has id {after} now"):
        read(cluster, Wanted(topic, 0, 50, 150, before))
    found, _ = read(cluster, Wanted(topic, 0, 50, 150, before), fail_on_data_loss=False)
    assert found == [f"v{n}" for n in range(1050, 1150)]


def _again(topic: str) -> object:
    from confluent_kafka.admin import NewTopic

    return NewTopic(topic, 1, 1)


def test_a_deleted_topic_is_data_loss_where_its_id_was_known(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "PATIENCE_MS", 300)
    topic = fresh_topic(cluster.servers)
    send(cluster, topic, range(50))
    known = topic_id(cluster, topic)
    delete_topic(cluster, topic)
    eventually(lambda: cluster.topic(topic, refresh=True) is None)
    with pytest.raises(DataLossError, match=rf"id {known}, but it was deleted"):
        read(cluster, Wanted(topic, 0, 50, 150, known))


def test_an_id_that_a_broker_does_not_know_for_a_moment_is_passing_trouble(kafka_servers: str) -> None:
    topic = fresh_topic(kafka_servers)
    with Proxy(kafka_servers) as proxy, Cluster(proxy.servers) as cluster:
        send(cluster, topic, range(50))
        known = topic_id(cluster, topic)
        rule = Rule(
            apis=frozenset({"fetch"}), action=Action.CHANGE, change=failed_fetch(UNKNOWN_TOPIC_ID), nth=2, times=3
        )
        proxy.add(rule)
        found = [
            value
            for batch in fetch_all(cluster, [Wanted(topic, 0, 0, 50, known)], max_bytes=300)
            for value in batch.column("value").to_pylist()
        ]
        rule.wait(5)
    assert len(found) == 50


def test_where_an_epoch_ends_is_told_by_both_brokers(cluster: Cluster) -> None:
    topic = fresh_topic(cluster.servers)
    place = TopicPartition(topic, 0)
    send(cluster, topic, range(50))
    assert epoch_ends(cluster, {place: 0}) == {place: (0, 50)}
    assert epoch_ends(cluster, {place: 5}) == {place: (-1, -1)}
    assert listed(cluster, {place: LATEST}) == {place: (50, 0)}


def test_an_epoch_that_the_leader_does_not_know_is_no_proof_of_loss(cluster: Cluster) -> None:
    """It answers OFFSET_OUT_OF_RANGE, although the position lies within the log."""
    topic = fresh_topic(cluster.servers)
    send(cluster, topic, range(50))
    found, account = read(cluster, Wanted(topic, 0, 20, 50, None, 7))
    assert found == [f"v{n}" for n in range(20, 50)]
    assert account.epoch == 0


def test_a_log_that_ends_before_what_was_read_is_refused(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded broker's disk goes back to an older copy."""
    monkeypatch.setattr(reader, "CUT_BELIEVED_MS", 300)
    with Broker(data=scratch / "data") as broker:
        topic = fresh_topic(broker.servers)
        with Cluster(broker.servers) as cluster:
            send(cluster, topic, range(50))
            broker.stop()
            shutil.copytree(scratch / "data", scratch / "copy")
            broker.start()
            send(cluster, topic, range(50, 120))
            _, account = read(cluster, Wanted(topic, 0, 0, 100))
            broker.stop()
            shutil.rmtree(scratch / "data")
            shutil.copytree(scratch / "copy", scratch / "data")
            broker.start()
            for epoch in (account.epoch, -1):
                with pytest.raises(DataLossError, match=rf"{topic}/0: .*offset.* (50|49)"):
                    read(cluster, Wanted(topic, 0, 100, 120, None, epoch))


def test_a_log_that_ends_within_a_range_is_refused_with_both_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a cut that took records which were planned and not read: the position before them is still there."""
    monkeypatch.setattr(reader, "CUT_BELIEVED_MS", 300)
    topic = fresh_topic(cluster.servers)
    send(cluster, topic, range(10))
    for start in (5, 10):
        with pytest.raises(DataLossError, match=rf"{topic}/0: offsets 10 to 19 are wanted, but only 0 to 9 are there"):
            read(cluster, Wanted(topic, 0, start, 20))
    found, account = read(cluster, Wanted(topic, 0, 5, 20), fail_on_data_loss=False)
    assert (found, account.gone) == ([f"v{n}" for n in range(5, 10)], 10)


@pytest.fixture(scope="module")
def restartable() -> Iterator[object]:
    from atonce.local.servers.kafka import ApacheKafka

    with ApacheKafka() as kafka:
        yield kafka


def test_a_log_cut_and_refilled_is_refused_and_a_restart_is_not(restartable: object, scratch: Path) -> None:
    """A partition's files go back to an older copy, as after an unclean election; then it grows past the position."""
    from atonce.local.servers.kafka import ApacheKafka

    assert isinstance(restartable, ApacheKafka)
    kafka, place = restartable, TopicPartition(fresh_topic(restartable.servers), 0)
    files = kafka.data / "node-1" / "log" / f"{place.topic}-0"
    with Cluster(kafka.servers) as cluster:
        send(cluster, place.topic, range(100))
        known = topic_id(cluster, place.topic)
        kafka.stop()
        shutil.copytree(files, scratch / "copy")
        kafka.restart()
        send(cluster, place.topic, range(100, 200))
        found, account = read(cluster, Wanted(place.topic, 0, 100, 200, known, 0))
        assert (len(found), account.records) == (100, 100), "an ordinary restart, with a new leader epoch, is no loss"
        assert account.epoch > 0
        kafka.kill()
        shutil.rmtree(files)
        shutil.copytree(scratch / "copy", files)
        kafka.restart()
        send(cluster, place.topic, range(1000, 1150))
        assert list_offsets(cluster, {place: LATEST}) == {place: 250}
        with pytest.raises(
            DataLossError,
            match=rf"{place}: read up to offset 200, .* epoch {account.epoch}, .*epoch 0 ends at offset 100",
        ):
            read(cluster, Wanted(place.topic, 0, 200, 250, known, account.epoch))
        found, _ = read(cluster, Wanted(place.topic, 0, 200, 250, known, account.epoch), fail_on_data_loss=False)
        assert found == [f"v{n}" for n in range(1100, 1150)]


def test_pieces_of_one_range_are_kept_over_a_restart_and_refused_over_a_cut(
    restartable: object, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks read parts of one partition, and between them its files go back to an older copy and grow again."""
    from atonce.local.servers.kafka import ApacheKafka

    assert isinstance(restartable, ApacheKafka)
    kafka, topic = restartable, fresh_topic(restartable.servers)
    files = kafka.data / "node-1" / "log" / f"{topic}-0"
    source = KafkaSource(Kafka(topic, servers=kafka.servers))
    with Cluster(kafka.servers) as cluster:

        def piece(start: int, end: int) -> Account:
            return read(cluster, Wanted(topic, 0, start, end, topic_id(cluster, topic)))[1]

        send(cluster, topic, range(100))
        first = piece(0, 100)
        kafka.stop()
        shutil.copytree(files, scratch / "copy")
        kafka.restart()
        send(cluster, topic, range(100, 200))
        second, third = piece(100, 150), piece(150, 200)
        kept = seams([first, second, third])
        assert [(seam.upto, seam.epoch, seam.next_epoch) for seam in kept] == [(100, 0, second.epoch)]
        source.refuse_torn(kept)  # an ordinary restart: the epoch before ends where the next one begins

        kafka.kill()
        shutil.rmtree(files)
        shutil.copytree(scratch / "copy", files)
        kafka.restart()
        send(cluster, topic, range(1000, 1150))
        cut = rf"{topic}/0: read up to offset 150, .* leader epoch {second.epoch}, but now epoch 0 ends at offset 100"
        with pytest.raises(DataLossError, match=cut):
            source.refuse_torn(seams([first, second, piece(150, 250)]))
        behind = rf"{topic}/0: read up to offset 150, .* but from offset 150 on in epoch {third.epoch}"
        with pytest.raises(DataLossError, match=behind):
            source.refuse_torn(seams([first, piece(100, 150), third]))
        source.refuse_torn(seams([first, piece(100, 150), piece(150, 250)]))
        KafkaSource(Kafka(topic, servers=kafka.servers, fail_on_data_loss=False)).refuse_torn(seams([second, first]))
        KafkaSource(Kafka(topic, servers=kafka.servers, fail_on_data_loss=False)).refuse_torn(
            seams([second, piece(150, 250)])
        )
        assert "ends at offset 100. Going on" in caplog.text
