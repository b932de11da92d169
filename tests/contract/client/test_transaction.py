"""The driver's transaction on both brokers: atomic, fenced, and resolved when an answer is lost (S9–S12, F14, F16)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from atonce.client.errors import FencedError
from atonce.client.offsets import Committed, TopicPartition, committed
from atonce.client.produce import Sender
from atonce.client.transaction import Transaction
from atonce.errors import InvariantError, UsageError
from tests.contract.client.parts import LossyCluster, blobs, fresh_name, fresh_topic, read_values


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[LossyCluster]:
    with LossyCluster(kafka_servers) as made:
        yield made


def begun(cluster: LossyCluster, name: str | None = None) -> Transaction:
    transaction = Transaction(cluster, name or fresh_name("tx"), 60_000)
    transaction.init()
    return transaction


def writer(cluster: LossyCluster, transaction: Transaction) -> Sender:
    return Sender(
        cluster,
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
    )


def test_output_and_offsets_become_visible_together(cluster: LossyCluster) -> None:
    topic, source, group = fresh_topic(cluster.servers, 2), fresh_topic(cluster.servers), fresh_name("g")
    place, transaction = TopicPartition(source, 0), begun(cluster)
    sender = writer(cluster, transaction)
    for partition in (0, 1):
        for blob in blobs(range(20)):
            sender.send(topic, partition, blob)
    sender.flush()
    transaction.commit_offsets(group, {place: Committed(offset=20, metadata="batch 0")})
    assert read_values(cluster, topic) == []
    assert committed(cluster, group, require_stable=False) == {}
    transaction.end(commit=True)
    transaction.wait_complete()
    assert [len(read_values(cluster, topic, p)) for p in (0, 1)] == [20, 20]
    assert committed(cluster, group)[place] == Committed(offset=20, metadata="batch 0")


def test_an_abort_leaves_nothing_to_read_committed(cluster: LossyCluster) -> None:
    topic, group, transaction = fresh_topic(cluster.servers), fresh_name("g"), begun(cluster)
    sender = writer(cluster, transaction)
    sender.send(topic, 0, blobs(range(5))[0])
    sender.flush()
    transaction.commit_offsets(group, {TopicPartition(topic, 0): Committed(offset=5)})
    transaction.end(commit=False)
    transaction.wait_complete()
    assert read_values(cluster, topic) == []
    assert len(read_values(cluster, topic, isolation="read_uncommitted")) == 5
    assert committed(cluster, group) == {}


def test_every_transaction_has_its_own_epoch_and_the_old_one_is_fenced(cluster: LossyCluster) -> None:
    topic, transaction = fresh_topic(cluster.servers), begun(cluster)
    old = writer(cluster, transaction)
    old.send(topic, 0, blobs(range(5))[0])
    old.flush()
    before = (transaction.producer_id, transaction.epoch)
    transaction.end(commit=True)
    transaction.wait_complete()
    assert (transaction.producer_id, transaction.epoch) > before
    with pytest.raises(FencedError, match=r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED"):
        old.send(topic, 0, blobs(range(5, 10))[0])
        old.flush()
    assert len(read_values(cluster, topic)) == 5


def test_a_newer_instance_fences_the_older_and_aborts_what_it_left_open(cluster: LossyCluster) -> None:
    topic, older = fresh_topic(cluster.servers), begun(cluster)
    sender = writer(cluster, older)
    sender.send(topic, 0, blobs(range(5))[0])
    sender.flush()
    newer = begun(cluster, older.transactional_id)
    with pytest.raises(FencedError):
        older.end(commit=True)
    newer.wait_complete()
    assert read_values(cluster, topic) == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_lost_answer_to_the_end_is_resolved_in_the_same_direction(cluster: LossyCluster, commit: bool) -> None:
    topic, transaction = fresh_topic(cluster.servers), begun(cluster)
    sender = writer(cluster, transaction)
    sender.send(topic, 0, blobs(range(5))[0])
    sender.flush()
    epoch = transaction.epoch
    cluster.lose_call_answer = "EndTxn"
    transaction.end(commit=commit)
    assert cluster.fired == 1
    assert transaction.epoch == epoch + 1
    transaction.wait_complete()
    assert len(read_values(cluster, topic)) == (5 if commit else 0)
    # and the next transaction works
    sender = writer(cluster, transaction)
    sender.send(topic, 0, blobs(range(5))[0])
    sender.flush()
    transaction.end(commit=True)
    transaction.wait_complete()
    assert len(read_values(cluster, topic)) == (10 if commit else 5)


@pytest.mark.parametrize("lost", ["InitProducerId", "TxnOffsetCommit"])
def test_other_lost_answers_are_repeated(cluster: LossyCluster, lost: str) -> None:
    topic, group = fresh_topic(cluster.servers), fresh_name("g")
    place = TopicPartition(topic, 0)
    cluster.lose_call_answer = lost
    transaction = begun(cluster)
    transaction.commit_offsets(group, {place: Committed(offset=1)})
    assert cluster.fired == 1
    transaction.end(commit=True)
    transaction.wait_complete()  # the first offsets of a group are listed only once the marker is written
    assert committed(cluster, group)[place].offset == 1


def test_nothing_can_be_written_before_init(cluster: LossyCluster) -> None:
    transaction = Transaction(cluster, fresh_name("tx"), 60_000)
    with pytest.raises(InvariantError, match=r"call init\(\) first"):
        transaction.end(commit=True)


def test_a_timeout_beyond_the_brokers_maximum_is_refused(cluster: LossyCluster) -> None:
    with pytest.raises(UsageError, match=r"transaction.timeout.ms=2000000000 is more than the broker allows"):
        Transaction(cluster, fresh_name("tx"), 2_000_000_000).init()
