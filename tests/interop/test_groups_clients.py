"""librdkafka's consumers in groups, unmodified, under both group protocols, on both brokers (S2, S3, F18)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.coordinator_calls import eventually, fresh

PARTITIONS = 4


@pytest.fixture
def topic(kafka_servers: str) -> str:
    name = fresh("topic")
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(20)
    return name


def fill(servers: str, topic: str, start: int, count: int) -> None:
    writer = Producer({"bootstrap.servers": servers})
    for number in range(start, start + count):
        writer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert writer.flush(20) == 0


class Member:
    def __init__(self, servers: str, group: str, topic: str, protocol: str, **settings: Any) -> None:
        timing = {} if protocol == "consumer" else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **timing,
                **settings,
            }
        )
        self.consumer.subscribe([topic])
        self.values: list[int] = []

    def poll(self, timeout_s: float = 0.05) -> None:
        for message in self.consumer.consume(100, timeout_s):
            if message.error() is None:
                self.values.append(int(message.value()))

    @property
    def partitions(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def poll_until(members: list[Member], good: Any, timeout_s: float = 40.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not good():
        if time.monotonic() > deadline:
            return False
        for member in members:
            member.poll()
    return True


@pytest.mark.parametrize(
    ("kafka_servers", "protocol"),
    [
        ("embedded", "classic"),
        ("apache_kafka", "classic"),
        ("embedded", "consumer"),
        # Ten seconds, because of its heartbeat interval; the wire is compared in test_groups_new_protocol.
        pytest.param("apache_kafka", "consumer", marks=pytest.mark.soak),
    ],
    indirect=["kafka_servers"],
)
def test_two_members_share_the_partitions_and_the_one_left_takes_over(
    kafka_servers: str, topic: str, protocol: str
) -> None:
    group = fresh("group")
    everything = set(range(PARTITIONS))
    fill(kafka_servers, topic, 0, 40)
    first = Member(kafka_servers, group, topic, protocol)
    assert poll_until([first], lambda: first.partitions == everything and len(first.values) == 40)
    assert sorted(first.values) == list(range(40))
    first.consumer.commit(asynchronous=False)
    second = Member(kafka_servers, group, topic, protocol)
    shared = lambda: len(first.partitions) == len(second.partitions) == 2  # noqa: E731
    assert poll_until([first, second], shared)
    assert first.partitions | second.partitions == everything
    fill(kafka_servers, topic, 40, 40)
    assert poll_until([first, second], lambda: len(first.values) + len(second.values) == 80)
    assert sorted(first.values + second.values) == list(range(80)), "each record once, from the committed offsets on"
    second.consumer.commit(asynchronous=False)
    first.consumer.commit(asynchronous=False)
    first.close()
    assert poll_until([second], lambda: second.partitions == everything)
    second.close()
    reader = Consumer({"bootstrap.servers": kafka_servers, "group.id": group})
    committed = reader.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], 20)
    reader.close()
    assert [p.offset for p in committed] == [20] * PARTITIONS


def test_static_member_returns_without_moving_partitions(kafka_servers: str, topic: str) -> None:
    group = fresh("group")
    one = Member(kafka_servers, group, topic, "classic", **{"group.instance.id": "one"})
    two = Member(kafka_servers, group, topic, "classic", **{"group.instance.id": "two"})
    assert poll_until([one, two], lambda: len(one.partitions) == len(two.partitions) == 2)
    before = (one.partitions, two.partitions)
    two.close()  # a static member does not leave
    back = Member(kafka_servers, group, topic, "classic", **{"group.instance.id": "two"})
    assert poll_until([one, back], lambda: back.partitions == before[1])
    assert one.partitions == before[0]
    one.close()
    back.close()


def test_administrators_see_groups_members_and_offsets(kafka_servers: str, topic: str) -> None:
    group = fresh("group")
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    member = Member(kafka_servers, group, topic, "classic")
    assert poll_until([member], lambda: len(member.partitions) == PARTITIONS)
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(20).valid}
    assert listed[group].state.name == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert len(described.members) == 1
    assert {p.partition for p in described.members[0].assignment.topic_partitions} == set(range(PARTITIONS))
    member.consumer.commit(offsets=[TopicPartition(topic, 0, 11, "note")], asynchronous=False)
    member.close()
    emptied = lambda: admin.describe_consumer_groups([group])[group].result(20).state.name  # noqa: E731
    assert eventually(emptied, lambda state: state == "EMPTY") == "EMPTY"
    admin.delete_consumer_groups([group])[group].result(20)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(20).valid}
