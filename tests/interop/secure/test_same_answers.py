"""Logins and ACLs: the embedded broker answers as Apache Kafka does, field by field."""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from atonce.broker.messages import build
from atonce.local.ports import free_ports
from atonce.local.servers.kafka import ApacheKafka
from atonce.records.record import build_batch
from tests.interop.coordinator_calls import PASSING, eventually
from tests.interop.script import Script, differences
from tests.interop.secure.parts import PASSWORD, USER, SecureBroker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # whoever comes by the listener without a login
}
TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


class Calls(Script):
    """Fields that are not given get the schema's defaults."""

    def send(self, api_key: int, version: int, **fields: Any) -> tuple[int, int, int]:
        entity = load_request_schema(api_key, version)
        number = next(self._numbers)
        buffer = io.BytesIO()
        buffer.write(struct.pack(">hhih", api_key, version, number, 3) + b"raw")
        if int(entity.__header_schema__.__version__) >= 2:
            buffer.write(b"\0")
        entity_writer(entity)(buffer, build(entity, fields))
        self._socket.sendall(struct.pack(">i", buffer.tell()) + buffer.getvalue())
        return number, api_key, version

    def log_in(self) -> None:
        self.call(17, 1, mechanism="PLAIN")
        answer = self.call(36, 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        assert not answer.error_code, answer

    def allow(self, kind: int, name: str, operation: int, pattern: int = LITERAL, permission: int = ALLOW) -> None:
        entry = {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": f"User:{USER}",
            "host": "*",
            "operation": operation,
            "permission_type": permission,
        }
        for result in self.call(30, 3, creations=[entry]).results:
            assert not result.error_code, result
        fields = ("resource_name", "resource_pattern_type", "resource_type")
        named = {field.replace("resource_pattern", "pattern") + "_filter": entry[field] for field in fields}
        wanted = {"principal_filter": None, "host_filter": None, "operation": operation, "permission_type": permission}
        self.wait_for_acls(1, {**named, **wanted})

    def wait_for_acls(self, count: int, wanted: dict[str, Any]) -> None:
        """Apache Kafka's brokers learn of them a moment after their controller."""

        def found() -> int:
            return sum(len(one.acls) for one in self.call(29, 3, **wanted).resources)

        assert eventually(found, lambda now: now == count) == count


@dataclass(frozen=True)
class Both:
    """(with a login, without one) of each broker."""

    embedded: tuple[str, str]
    apache: tuple[str, str]

    def same(self, play: Callable[[Calls, Calls], None]) -> None:
        played = []
        for secured, plain in (self.embedded, self.apache):
            with Calls(secured) as alice, Calls(plain) as admin:
                play(alice, admin)
                played.append((alice, admin))
        (ours, our_admin), (theirs, their_admin) = played
        assert ours.answers or our_admin.answers
        found = differences(ours, theirs) + differences(our_admin, their_admin)
        assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    (port,) = free_ports(1)
    settings = {
        **AUTHORIZER,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "auto.create.topics.enable": "true",
    }
    for number in ("256", "512"):
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        settings[f"listener.name.sasl_plaintext.scram-sha-{number}.sasl.jaas.config"] = scram
    ours = {**AUTHORIZER, "num.partitions": 1}
    with (
        SecureBroker(("PLAINTEXT", "SASL_PLAINTEXT"), ours) as broker,
        ApacheKafka(settings=settings, listeners={"SASL_PLAINTEXT": port}) as kafka,
    ):
        yield Both(
            (broker.servers_of("SASL_PLAINTEXT"), broker.servers_of("PLAINTEXT")),
            (f"127.0.0.1:{port}", kafka.servers),
        )


def test_logins(both: Both) -> None:
    def play(alice: Calls, admin: Calls) -> None:
        admin.note("a handshake without need", 17, 1, mechanism="PLAIN")
        admin.note("a login without need", 36, 2, auth_bytes=b"x")
        alice.note("the handshake", 17, 1, mechanism="PLAIN")
        alice.note("the login", 36, 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        alice.note("a handshake after it", 17, 1, mechanism="PLAIN")

    both.same(play)

    def refused(alice: Calls, admin: Calls) -> None:
        alice.call(17, 1, mechanism="PLAIN")
        alice.note("a wrong password", 36, 2, auth_bytes=f"\0{USER}\0wrong".encode())
        with pytest.raises((ConnectionError, OSError)):
            alice.call(18, 0)

    both.same(refused)

    def unknown(alice: Calls, admin: Calls) -> None:
        alice.note("an unknown mechanism", 17, 1, mechanism="GSSAPI")

    both.same(unknown)


def test_credentials_of_users(both: Both) -> None:
    def play(alice: Calls, admin: Calls) -> None:
        good = {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
        admin.note("set", 51, 0, upsertions=[good])
        for what, change in (
            ("few", {"iterations": 4095}),
            ("many", {"iterations": 16385}),
            ("mechanism", {"mechanism": 9}),
            ("no name", {"name": ""}),
        ):
            admin.note(what, 51, 0, upsertions=[{**good, **change}])
        admin.note("twice", 51, 0, upsertions=[good, {**good, "mechanism": 2}])
        admin.note("both", 51, 0, upsertions=[good], deletions=[{"name": "bob", "mechanism": 1}])
        admin.note("delete what is not there", 51, 0, deletions=[{"name": "bob", "mechanism": 2}])
        admin.note("describe", 50, 0, users=[{"name": "bob"}, {"name": "nobody"}])
        admin.note("describe twice", 50, 0, users=[{"name": "bob"}, {"name": "bob"}])
        admin.note("delete", 51, 0, deletions=[{"name": "bob", "mechanism": 1}])
        # Apache Kafka answers a moment before it has forgotten him.
        eventually(
            lambda: admin.call(50, 0, users=[{"name": "bob"}]).results[0].error_code,
            lambda error: error is ErrorCode.resource_not_found,
        )
        admin.note("describe again", 50, 0, users=[{"name": "bob"}])
        alice.log_in()
        alice.note("set by a user", 51, 0, upsertions=[good])
        alice.note("describe by a user", 50, 0, users=[{"name": "bob"}])

    both.same(play)


def test_acls_are_made_described_and_deleted(both: Both) -> None:
    entry = {
        "resource_type": TOPIC,
        "resource_name": "acl-x",
        "resource_pattern_type": PREFIXED,
        "principal": "User:dora",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": "User:dora",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }

    def play(alice: Calls, admin: Calls) -> None:
        star = {**entry, "resource_name": "*", "resource_pattern_type": LITERAL, "operation": WRITE}
        admin.note("create", 30, 3, creations=[entry, star, {**entry, "permission_type": DENY}])
        admin.wait_for_acls(3, anything)
        admin.note("create again", 30, 3, creations=[entry])
        for what, change in (
            ("empty", {"resource_name": ""}),
            ("cluster", {"resource_type": CLUSTER, "resource_pattern_type": LITERAL}),
            ("principal", {"principal": "dora"}),
        ):
            admin.note(what, 30, 3, creations=[{**entry, **change}])
        admin.note("all of dora's", 29, 3, **anything)
        admin.note("literal", 29, 3, **{**anything, "pattern_type_filter": LITERAL})
        for name in ("acl-xyz", "acl-x", "acl"):
            admin.note(f"match {name}", 29, 3, **{**anything, "resource_name_filter": name, "pattern_type_filter": 2})
            admin.note(f"any {name}", 29, 3, **{**anything, "resource_name_filter": name})
        admin.note("reads", 29, 3, **{**anything, "operation": READ})
        admin.note("delete none", 31, 3, filters=[{**anything, "host_filter": "1.2.3.4"}])
        admin.note("delete", 31, 3, filters=[anything])
        admin.wait_for_acls(0, anything)
        admin.note("nothing left", 29, 3, **anything)
        alice.log_in()
        alice.note("describe", 29, 3, **anything)
        alice.note("create", 30, 3, creations=[entry])
        alice.note("delete", 31, 3, filters=[anything])

    both.same(play)


def records(**more: Any) -> bytes:
    return bytes(build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000, **more))


def prepared(alice: Calls, admin: Calls, mark: str) -> None:
    """alice may use what begins with `mine`, describe what begins with `seen`, and not read `mine…denied`."""
    for name in (f"mine-{mark}", f"mine-{mark}-denied", f"seen-{mark}", f"theirs-{mark}"):
        created = admin.call(
            19, 5, topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}], timeout=10_000
        )
        assert not created.topics[0].error_code
        admin.leaders_answer(name)
    for kind in (TOPIC, GROUP, TRANSACTION):
        for operation in (READ, WRITE) if kind == TOPIC else (READ,) if kind == GROUP else (WRITE,):
            admin.allow(kind, f"mine-{mark}", operation, PREFIXED)
    admin.allow(TOPIC, f"mine-{mark}-denied", READ, permission=DENY)
    admin.allow(TOPIC, f"seen-{mark}", DESCRIBE)
    alice.log_in()
    alice.remember(mark, "mark")
    admin.remember(mark, "mark")


def names(mark: str) -> list[str]:
    return [f"mine-{mark}", f"mine-{mark}-denied", f"seen-{mark}", f"theirs-{mark}", f"none-{mark}"]


def test_topics_are_guarded_alike(both: Both) -> None:
    mark = uuid.uuid4().hex[:8]

    def play(alice: Calls, admin: Calls) -> None:
        prepared(alice, admin, mark)
        listed = names(mark)
        named = [{"name": name} for name in listed]
        ids = {one.name: one.topic_id for one in admin.call(3, 12, topics=named[:4]).topics}
        for version in (1, 5, 9, 13):
            alice.note("Metadata", 3, version, topics=named, allow_auto_topic_creation=False)
        everything = alice.call(3, 12, topics=None).topics
        alice.answers.append(("visible", sorted(one.name.replace(mark, "") for one in everything if mark in one.name)))
        alice.answers.append(("nothing else", [one.name for one in everything if one.name.startswith("__")]))
        by_id = [{"name": None, "topic_id": ids[name]} for name in listed[:4]]
        alice.note("Metadata by id", 3, 12, topics=by_id)
        creating = [{"name": f"mine-{mark}-new"}, {"name": f"seen-{mark}-new"}]
        alice.note("Metadata that would create", 3, 12, topics=creating, allow_auto_topic_creation=True)
        asked = {"topics": named[:1], "include_topic_authorized_operations": True}
        alice.note("operations", 3, 10, **asked, include_cluster_authorized_operations=True)
        alice.note("DescribeTopicPartitions", 75, 0, topics=named, response_partition_limit=100, cursor=None)
        alice.note("DescribeCluster", 60, 1, include_cluster_authorized_operations=True)
        one = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
        for version in (1, 6, 10):
            alice.note("ListOffsets", 2, version, topics=[{"name": name, "partitions": one} for name in listed])
        epoch = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        alice.note("epochs", 23, 4, topics=[{"topic": name, "partitions": epoch} for name in listed])
        part = [{"index": 0, "records": records()}]
        for version in (7, 11):
            data = [{"name": name, "partition_data": part} for name in listed[:4]]
            alice.note("Produce", 0, version, acks=-1, timeout=9000, transactional_id=None, topic_data=data)
        data = [{"topic_id": ids[name], "partition_data": part} for name in listed[:4]]
        alice.note("Produce by id", 0, 13, acks=-1, timeout=9000, transactional_id=None, topic_data=data)
        size = {"max_bytes": 1 << 20, "min_bytes": 0, "max_wait": 0}
        want = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}]
        for version in (6, 12):
            topics = [{"topic": name, "partitions": want} for name in listed[1:4]]
            alice.note("Fetch", 1, version, **size, topics=topics)
        topics = [{"topic_id": ids[name], "partitions": want} for name in listed[1:4]]
        alice.note("Fetch by id", 1, 13, **size, topics=topics)
        alice.note("DeleteRecords", 21, 2, topics=[
            {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in listed
        ], timeout=9000)  # fmt: skip
        alice.note("DescribeProducers", 61, 0, topics=[{"name": n, "partition_indexes": [0]} for n in listed[1:4]])

    both.same(play)


def test_changes_of_topics_are_guarded_alike(both: Both) -> None:
    mark = uuid.uuid4().hex[:8]

    def play(alice: Calls, admin: Calls) -> None:
        prepared(alice, admin, mark)
        listed = names(mark)
        ids = {one.name: one.topic_id for one in admin.call(3, 12, topics=[{"name": n} for n in listed[:4]]).topics}
        admin.allow(TOPIC, f"made-{mark}", CREATE)
        for name in (f"made-{mark}", f"none-{mark}"):
            new = {"name": name, "num_partitions": 1, "replication_factor": 1}
            alice.note("CreateTopics", 19, 5, topics=[new], timeout=9000)
        grown = [{"name": name, "count": 2, "assignments": None} for name in listed]
        alice.note("CreatePartitions", 37, 3, topics=grown, timeout=9000)
        settings = [{"resource_type": 2, "resource_name": name, "configuration_keys": ["x"]} for name in listed]
        broker = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["x"]}
        alice.note("DescribeConfigs", 32, 4, resources=[*settings, broker])
        change = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
        resources = [{"resource_type": 2, "resource_name": name, "configs": change} for name in listed]
        resources.append({"resource_type": 4, "resource_name": "1", "configs": change})
        alice.note("IncrementalAlterConfigs", 44, 1, resources=resources)
        plain = [{"name": "retention.ms", "value": "1000"}]
        alice.note("AlterConfigs", 33, 2, resources=[{**one, "configs": plain} for one in resources])
        alice.note("DeleteTopics", 20, 4, topic_names=listed, timeout=9000)
        unknown = uuid.UUID(int=77)
        by_id = [{"name": None, "topic_id": each} for each in (*(ids[name] for name in listed[:4]), unknown)]
        alice.note("DeleteTopics by id", 20, 6, topics=by_id, timeout=9000)
        admin.allow(TOPIC, f"seen-{mark}", DELETE)
        alice.note("DeleteTopics, allowed", 20, 6, topics=[{"name": f"seen-{mark}", "topic_id": None}], timeout=9000)
        alice.note("DescribeLogDirs", 35, 4, topics=None)
        alice.note("ListPartitionReassignments", 46, 0, timeout=9000, topics=None)

    both.same(play)


def test_groups_are_guarded_alike(both: Both) -> None:
    mark = uuid.uuid4().hex[:8]
    mine, theirs = f"mine-{mark}", f"theirs-{mark}"

    def play(alice: Calls, admin: Calls) -> None:
        prepared(alice, admin, mark)
        for version in (0, 3):
            alice.note("FindCoordinator", 10, version, key=theirs, key_type=0)
        alice.note("FindCoordinator", 10, 4, coordinator_keys=[theirs], key_type=0)
        alice.note("FindCoordinator of a transaction", 10, 4, coordinator_keys=[theirs], key_type=1)
        alice.coordinator(mine, 0)
        for version in (2, 7, 9):
            alice.note("JoinGroup", 11, version, group_id=theirs, session_timeout=6000, protocol_type="consumer")
        alice.note("SyncGroup", 14, 5, group_id=theirs, protocol_type="consumer", protocol_name="range")
        alice.note("Heartbeat", 12, 4, group_id=theirs)
        alice.note("LeaveGroup", 13, 4, group_id=theirs, members=[{"member_id": "x"}])
        committed = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
        topics = [{"name": name, "partitions": committed} for name in names(mark)]
        for group in (theirs, mine):
            for version in (3, 8):
                alice.note("OffsetCommit", 8, version, group_id=group, generation_id_or_member_epoch=-1, topics=topics)
            fetched = [{"name": name, "partition_indexes": [0]} for name in names(mark)]
            for version in (1, 5, 7):
                alice.note("OffsetFetch", 9, version, group_id=group, topics=fetched)
            alice.note("OffsetFetch of all", 9, 7, group_id=group, topics=None)
            asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": fetched}
            alice.note("OffsetFetch", 9, 9, groups=[asked])
            alice.note("DescribeGroups", 15, 5, groups=[group], include_authorized_operations=True)
            alice.note("ConsumerGroupDescribe", 69, 0, group_ids=[group], include_authorized_operations=True)
            alice.note("DeleteGroups", 42, 2, groups_names=[group])
            deleted = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names(mark)]
            alice.note("OffsetDelete", 47, 0, group_id=group, topics=deleted)
        beat = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 9000, "topic_partitions": []}
        alice.note("ConsumerGroupHeartbeat", 68, 0, group_id=theirs, subscribed_topic_names=[mine], **beat)
        alice.note("ConsumerGroupHeartbeat, topic", 68, 0, group_id=mine, subscribed_topic_names=[theirs], **beat)

    both.same(play)


def test_transactions_are_guarded_alike(both: Both) -> None:
    mark = uuid.uuid4().hex[:8]
    mine, theirs = f"mine-{mark}", f"theirs-{mark}"

    def play(alice: Calls, admin: Calls) -> None:
        prepared(alice, admin, mark)
        alice.note("InitProducerId", 22, 4, transactional_id=theirs, transaction_timeout=9000,
                   producer_id=-1, producer_epoch=-1)  # fmt: skip
        idempotent = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        eventually(lambda: alice.call(22, 4, **idempotent), lambda answer: answer.error_code not in PASSING)
        alice.note("idempotent", 22, 4, **idempotent)
        producer = {"producer_id": 7, "producer_epoch": 0}
        topics = [{"name": name, "partitions": [0]} for name in (mine, theirs)]
        for transaction in (theirs, mine):
            given = {f"v3_and_below_{key}": value for key, value in producer.items()}
            alice.note("AddPartitionsToTxn", 24, 3, v3_and_below_transactional_id=transaction,
                       v3_and_below_topics=topics, **given)  # fmt: skip
            for group in (theirs, mine) if transaction == theirs else (theirs,):
                alice.note("AddOffsetsToTxn", 25, 3, transactional_id=transaction, group_id=group, **producer)
                committed = [{"name": mine, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
                alice.note("TxnOffsetCommit", 28, 3, transactional_id=transaction, group_id=group, generation_id=-1,
                           topics=committed, **producer)  # fmt: skip
        batched = {"transactional_id": mine, **producer, "verify_only": True, "topics": topics[:1]}
        alice.note("AddPartitionsToTxn", 24, 4, transactions=[batched])
        alice.note("EndTxn", 26, 3, transactional_id=theirs, committed=True, **producer)
        marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
        marked = [{"name": mine, "partition_indexes": [0]}]
        alice.note("WriteTxnMarkers", 27, 1, markers=[{**marker, "topics": marked}])
        alice.note("DescribeTransactions", 65, 0, transactional_ids=[theirs])
        batch = records(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        data = [{"name": mine, "partition_data": [{"index": 0, "records": batch}]}]
        alice.note("Produce", 0, 9, acks=-1, timeout=9000, transactional_id=theirs, topic_data=data)

    both.same(play)
