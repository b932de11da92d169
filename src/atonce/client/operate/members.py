"""The members of a group and the partitions each holds, under the classic and the new group protocol (KIP-848)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage

from atonce.client.answers import only
from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.errors import raise_for
from atonce.client.retry import retry

_SCHEMAS = "atonce.client.schemas"
_GROUP_ID_NOT_FOUND = 69
NEW_PROTOCOL = "consumer"
"""What ListGroups calls the type of a group under the new protocol."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    """Key 69, versions 0-1."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    """Its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[str, ...]
    """What it holds now, as TOPIC-PARTITION."""


def group_members(cluster: Cluster, group: str, kind: str) -> list[Member]:
    """`kind` is the group's type as ListGroups tells it; groups of the two protocols are described by two requests."""
    if kind.lower() == NEW_PROTOCOL:
        return _described(cluster, group, lambda: ConsumerGroupDescribeRequest(group_ids=[group]), _new_member)
    return _described(cluster, group, lambda: DescribeGroupsRequest(groups=[group]), _classic_member)


def _described(cluster: Cluster, group: str, request: Callable[[], Any], member: Any) -> list[Member]:
    what = f"describing group {group}"

    def ask() -> list[Member]:
        found = only(cluster.ask_coordinator(request(), group).groups, what)
        if found.error_code == _GROUP_ID_NOT_FOUND:
            return []
        raise_for(found.error_code, what)
        return [member(each) for each in found.members]

    return retry(
        ask,
        limit_ms=DEFAULT_TIMEOUT_MS,
        on_retry=lambda error: cluster.forget_coordinator(group, "group", error),
    )


def _new_member(member: Any) -> Member:
    held = [f"{each.topic_name}-{p}" for each in member.assignment.topic_partitions for p in each.partitions]
    return Member(
        member_id=member.member_id, client_id=member.client_id, host=member.client_host, partitions=tuple(held)
    )


def _classic_member(member: Any) -> Member:
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        partitions=assigned(member.member_assignment),
    )


def assigned(assignment: bytes) -> tuple[str, ...]:
    """Partitions of a classic member's assignment; empty for other kinds of groups (Connect), whose bytes differ."""
    try:
        held = []
        _, topics = struct.unpack_from(">hi", assignment)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", assignment, at)
            topic = bytes(assignment[at + 2 : at + 2 + length]).decode()
            (count,) = struct.unpack_from(">i", assignment, at + 2 + length)
            at += 6 + length
            held += [f"{topic}-{partition}" for partition in struct.unpack_from(f">{count}i", assignment, at)]
            at += 4 * count
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(held)
