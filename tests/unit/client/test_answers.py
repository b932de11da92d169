"""Whatever a broker answers becomes a retry or one clear line: never an IndexError, a KeyError, or silence (F31)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsResponse, DescribeConfigsResponse
from kafka.protocol.consumer import ListOffsetsResponse, OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import InitProducerIdResponse

from atonce.client import produce
from atonce.client.cluster import Cluster, Partition, Topic
from atonce.client.errors import BrokerRefused, TryAgain
from atonce.client.offsets import LATEST, Committed, TopicPartition, commit, committed, list_offsets
from atonce.client.operate import admin

PLACE = TopicPartition("t", 0)
UNHEARD_OF = 9_999


class Answering(Cluster):
    """A cluster of one node that gives the answers it was made with, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.servers, self.answers, self.asked = "nowhere:1", list(answers), 0
        self._topics = {"t": Topic(name="t", id="i", partitions=(Partition(index=0, leader=1, leader_epoch=0),))}
        self._coordinators = {("group", "g"): 1}

    def call(self, request: Any, node: int | None = None, timeout_ms: int = 30_000) -> Any:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def forget_topic(self, name: str) -> None:
        pass

    def forget_coordinator(self, key: str, kind: Any, error: Any = None) -> None:
        pass


def listed(code: int, *, partition: int = 0) -> Any:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    entry = topic.ListOffsetsPartitionResponse(
        partition_index=partition, error_code=code, timestamp=-1, offset=7, leader_epoch=0
    )
    return ListOffsetsResponse(throttle_time_ms=0, topics=[topic(name="t", partitions=[entry])])


def fetched(code: int, *, partition: int = 0) -> Any:
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    entry = topic.OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=7, committed_leader_epoch=-1, metadata="", error_code=code
    )
    answer = group(group_id="g", topics=[topic(name="t", partitions=[entry])], error_code=0)
    return OffsetFetchResponse(throttle_time_ms=0, groups=[answer])


def acknowledged(code: int, *, partition: int = 0) -> Any:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    entry = topic.OffsetCommitResponsePartition(partition_index=partition, error_code=code)
    return OffsetCommitResponse(throttle_time_ms=0, topics=[topic(name="t", partitions=[entry])])


ASKING: dict[str, tuple[Callable[[Cluster], Any], Callable[..., Any]]] = {
    "list_offsets": (lambda c: list_offsets(c, {PLACE: LATEST}, timeout_ms=40), listed),
    "committed": (lambda c: committed(c, "g", [PLACE], timeout_ms=40), fetched),
    "commit": (lambda c: commit(c, "g", {PLACE: Committed(offset=1)}, timeout_ms=40), acknowledged),
}


@pytest.mark.parametrize("name", ASKING)
def test_an_error_code_that_nobody_knows_is_one_clear_line(name: str) -> None:
    ask, answer = ASKING[name]
    with pytest.raises(BrokerRefused, match=rf"^[^\n]*t/0: the broker answered error {UNHEARD_OF}[^\n]*$"):
        ask(Answering(answer(UNHEARD_OF)))


@pytest.mark.parametrize("name", ASKING)
def test_an_answer_about_another_partition_is_asked_again_and_then_said(name: str) -> None:
    ask, answer = ASKING[name]
    cluster = Answering(answer(0, partition=5))
    with pytest.raises(TryAgain, match=r"t/0: the broker's answer leaves it out"):
        ask(cluster)
    assert cluster.asked > 1
    ask(Answering(answer(0, partition=5), answer(0)))


@pytest.mark.parametrize("indexes", [[], [0, 2], [1]])
def test_a_topic_whose_partitions_are_not_all_told_is_asked_again(indexes: list[int]) -> None:
    def described(indexes: list[int]) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=each,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for each in indexes
        ]
        found = topic(error_code=0, name="t", topic_id=None, is_internal=False, partitions=partitions)
        return MetadataResponse(error_code=0, brokers=[], cluster_id="c", controller_id=1, topics=[found])

    cluster = Answering(described(indexes), described([0, 1, 2]))
    found = cluster.topic("t", refresh=True)
    assert found is not None and [each.index for each in found.partitions] == [0, 1, 2]
    assert cluster.asked == 2


def test_a_coordinator_without_a_node_is_asked_for_again() -> None:
    def found(node: int) -> Any:
        kind = FindCoordinatorResponse.Coordinator
        coordinator = kind(key="other", node_id=node, host="h", port=1, error_code=0, error_message=None)
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=[coordinator])

    empty = FindCoordinatorResponse(throttle_time_ms=0, coordinators=[])
    cluster = Answering(empty, found(-1), found(3))
    assert cluster.coordinator("other") == 3
    assert cluster.asked == 3


def test_a_producer_id_that_is_none_is_asked_for_again() -> None:
    def given(producer_id: int) -> Any:
        return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)

    assert produce.idempotent_producer(Answering(given(-1), given(9))) == (9, 0)


def test_a_topic_quota_is_waited_for_and_a_topic_of_our_own_repetition_is_no_error() -> None:
    def created(code: int) -> Any:
        result = CreateTopicsResponse.CreatableTopicResult(
            name="n", topic_id=None, error_code=code, error_message="words", topic_config_error_code=0, configs=[]
        )
        return CreateTopicsResponse(throttle_time_ms=0, topics=[result])

    silent = CreateTopicsResponse(throttle_time_ms=0, topics=[])
    assert admin.create_topic(Answering(created(89), created(89), created(0)), "n") is True
    assert admin.create_topic(Answering(silent, created(36)), "n") is True
    assert admin.create_topic(Answering(created(36)), "n", exists_ok=True) is False
    with pytest.raises(BrokerRefused, match="the broker answered: words"):
        admin.create_topic(Answering(created(44)), "n")


def test_settings_that_are_not_told_are_asked_for_again() -> None:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[]
    )
    empty = DescribeConfigsResponse(throttle_time_ms=0, results=[])
    cluster = Answering(empty, DescribeConfigsResponse(throttle_time_ms=0, results=[result]))
    assert admin.topic_settings(cluster, "t") == {}
    assert cluster.asked == 2
