"""Every version of every API of groups, offsets and transactions: the embedded broker answers as Apache Kafka does.

Field by field, error codes included; only names, ids and the words of messages may differ.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.coordinator_calls import PASSING, eventually
from tests.interop.script import Script, differences

SUBSCRIPTION = b"\0\0\0\0\0\0\0\0\0\0"


@pytest.fixture
def brokers(embedded: str, apache_kafka: str) -> Iterator[tuple[Script, Script]]:
    with Script(embedded) as ours, Script(apache_kafka) as theirs:
        yield ours, theirs


def same(brokers: tuple[Script, Script], play: Callable[[Script], None]) -> None:
    for script in brokers:
        play(script)
    assert len(brokers[0].answers) > 5
    assert differences(*brokers) == []


def joined(script: Script, group: str, version: int = 9) -> str:
    """A group of one, not yet synced; returns the member id."""
    script.coordinator(group, 0)
    fields: dict[str, Any] = {} if version < 8 else {"reason": None}
    if version >= 5:
        fields["group_instance_id"] = None
    if version >= 1:
        fields["rebalance_timeout"] = 3_000

    def join(what: str, member_id: str) -> Any:
        return script.note(
            what,
            11,
            version,
            group_id=group,
            session_timeout=6_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
            **fields,
        )

    answer = join("JoinGroup", "")
    if answer.error_code is ErrorCode.member_id_required:
        answer = join("JoinGroup with its id", answer.member_id)
    join("JoinGroup as a stranger", "nobody")
    member_id: str = answer.member_id
    return member_id


def test_finding_coordinators(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        group, transactional_id = script.name("group"), script.name("txn")
        script.coordinator(group, 0)
        script.coordinator(transactional_id, 1)
        script.note("FindCoordinator", 10, 0, key=group)
        for version in range(1, 4):
            script.note("FindCoordinator", 10, version, key=group, key_type=0)
            script.note("FindCoordinator of a transaction", 10, version, key=transactional_id, key_type=1)
        for version in range(4, 7):
            script.note("FindCoordinator", 10, version, key_type=0, coordinator_keys=[group, ""])
            script.note("FindCoordinator of nonsense", 10, version, key_type=9, coordinator_keys=[group])

    same(brokers, play)


def test_classic_members(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        for version in range(10):
            group = script.name("group")
            member = {"group_id": group, "member_id": joined(script, group, version)}
            for sync in range(6):
                extra: dict[str, Any] = {} if sync < 3 else {"group_instance_id": None}
                if sync >= 5:
                    extra |= {"protocol_type": "consumer", "protocol_name": "range"}
                parts = [{"member_id": member["member_id"], "assignment": b"A"}]
                script.note("SyncGroup", 14, sync, **member, generation_id=1, assignments=parts, **extra)
                script.note("SyncGroup, old", 14, sync, **member, generation_id=7, assignments=[], **extra)
            for beat in range(5):
                instance = {} if beat < 3 else {"group_instance_id": None}
                script.note("Heartbeat", 12, beat, **member, generation_id=1, **instance)
                script.note("Heartbeat, old", 12, beat, **member, generation_id=0, **instance)
            for describe in range(7):
                options = {} if describe < 3 else {"include_authorized_operations": describe % 2 == 0}
                script.note("DescribeGroups", 15, describe, groups=[group, "nope", ""], **options)
            for leave in range(6):
                if leave < 3:
                    script.note("LeaveGroup", 13, leave, group_id=group, member_id="nobody")
                    continue
                stranger = {"member_id": "nobody", "group_instance_id": None} | ({"reason": None} if leave >= 5 else {})
                for name in (group, "nope", ""):
                    script.note("LeaveGroup", 13, leave, group_id=name, members=[stranger])

    same(brokers, play)


def test_offsets(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        topic, group = script.topic(2), script.name("group")
        script.remember(topic, "topic")
        topic_id, unknown = script.topic_id(topic), uuid.UUID(int=5)
        member_id = joined(script, group)
        script.note(
            "SyncGroup",
            14,
            5,
            group_id=group,
            generation_id=1,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        for version in range(2, 11):
            item: dict[str, Any] = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"}
            extra: dict[str, Any] = {} if version < 7 else {"group_instance_id": None}
            if version <= 4:
                extra["retention_time"] = -1
            if version >= 6:
                item["committed_leader_epoch"] = -1
            named = [{"name": name, "partitions": [item]} for name in (topic, "nope")]
            by_id = [{"topic_id": each, "partitions": [item]} for each in (topic_id, unknown)]
            for generation, who in ((1, member_id), (2, member_id), (1, "nobody"), (-1, "")):
                script.note(
                    f"OffsetCommit in {generation}",
                    8,
                    version,
                    group_id=group,
                    generation_id_or_member_epoch=generation,
                    member_id=who,
                    topics=by_id if version >= 10 else named,
                    **extra,
                )
        for version in range(1, 11):
            stable = {"require_stable": True} if version >= 7 else {}
            for wanted in ([0, 5], [], None):
                name = {"topic_id": topic_id} if version >= 10 else {"name": topic}
                topics = None if wanted is None else [{**name, "partition_indexes": wanted}] if wanted else []
                if version < 8 and (wanted is not None or version >= 2):
                    script.note(f"OffsetFetch {wanted}", 9, version, group_id=group, topics=topics, **stable)
                elif version >= 8:
                    member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
                    groups = [{"group_id": each, "topics": topics, **member} for each in (group, "nope", "")]
                    script.note(f"OffsetFetch {wanted}", 9, version, groups=groups, **stable)
        for name in (group, "nope"):
            topics = [
                {"name": t, "partitions": [{"partition_index": p}]} for t, p in ((topic, 0), (topic, 9), ("x", 0))
            ]
            script.note("OffsetDelete", 47, 0, group_id=name, topics=topics)
        for version in range(3):
            script.note("DeleteGroups", 42, version, groups_names=[group, "nope"])

    same(brokers, play)


def test_transactions(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        topic, group = script.topic(), script.name("group")
        script.remember(topic, "topic")
        script.coordinator(group, 0)
        for version in range(6):
            name = script.name("txn")
            script.coordinator(name, 1)
            eventually(lambda n=name: script.init(n)[0], lambda error: error not in PASSING)
            fresh_id = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
            for transactional_id, timeout in (
                (name, 60_000),
                (None, 60_000),
                ("", 60_000),
                (name, -1),
                (name, 900_001),
            ):
                fields = {"transactional_id": transactional_id, "transaction_timeout": timeout, **fresh_id}
                script.note(f"InitProducerId {timeout}", 22, version, **fields)
            _, producer = script.init(name)
            claims = (("nobody", 1, 0), ("", 1, 0), (name, producer.producer_id, 77), (name, 1_000_000_000, 0))
            for transactional_id, producer_id, epoch in claims:
                claim = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
                script.note("EndTxn", 26, version, **claim, committed=True)
                if version < 5:
                    script.note("AddOffsetsToTxn", 25, version, **claim, group_id=group)
                topics = [{"name": t, "partitions": [0]} for t in (topic, "nope")]
                if version < 4:
                    old = {f"v3_and_below_{field}": value for field, value in claim.items()}
                    script.note("AddPartitionsToTxn", 24, version, **old, v3_and_below_topics=topics[:1])
                    script.note("AddPartitionsToTxn, one unknown", 24, version, **old, v3_and_below_topics=topics)
                else:
                    asked = [{**claim, "verify_only": verify, "topics": topics[:1]} for verify in (True, False)]
                    for one in asked:
                        script.note("AddPartitionsToTxn", 24, version, transactions=[one])
                commit_offsets(script, version, claim, group, [topic, "nope"])
            good = {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            commit_offsets(script, version, good, group, [topic])
        script.note("DescribeTransactions", 65, 0, transactional_ids=["nobody", ""])
        script.note("ListTransactions", 66, 0, state_filters=["Nonsense"], producer_id_filters=[999_999_999])
        filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        for pattern in ("(", "nobody.*"):
            script.note("ListTransactions", 66, 2, **filters, transactional_id_pattern=pattern)

    same(brokers, play)


def commit_offsets(script: Script, version: int, claim: dict[str, Any], group: str, topics: list[str]) -> None:
    item: dict[str, Any] = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"}
    if version >= 2:
        item["committed_leader_epoch"] = -1
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None} if version >= 3 else {}
    for name in (group, ""):
        script.note(
            "TxnOffsetCommit",
            28,
            version,
            **claim,
            group_id=name,
            topics=[{"name": topic, "partitions": [item]} for topic in topics],
            **member,
        )
