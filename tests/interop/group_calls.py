"""What members of classic groups send, one call each."""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from tests.interop.coordinator_calls import PASSING, Calls, eventually

SESSION_MS = 6_000


class Member(NamedTuple):
    member_id: str
    generation: int
    instance_id: str | None = None


class GroupCalls(Calls):
    def send_join(
        self,
        group: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        protocol_type: str = "consumer",
        metadata: bytes = b"\0\0\0\0\0\0\0\0\0\0",
        rebalance_ms: int = 10_000,
        session_ms: int = SESSION_MS,
        version: int = 9,
    ) -> tuple[int, int, int]:
        fields: dict[str, Any] = {"reason": None} if version >= 8 else {}
        if version >= 5:
            fields["group_instance_id"] = instance_id
        return self.send(
            11,
            version,
            group_id=group,
            session_timeout=session_ms,
            rebalance_timeout=rebalance_ms,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": metadata} for name in protocols],
            **fields,
        )

    def join(self, group: str, member_id: str = "", **options: Any) -> Any:
        """One JoinGroup, waited for; the broker may still be finding itself."""
        return eventually(
            lambda: self.receive(self.send_join(group, member_id, **options)), lambda a: a.error_code not in PASSING
        )

    def join_new(self, group: str, **options: Any) -> Any:
        """A dynamic member: first its id, then in."""
        first = self.join(group, **options)
        if first.error_code is not ErrorCode.member_id_required:
            return first
        return self.join(group, first.member_id, **options)

    def sync(
        self,
        group: str,
        member: Member,
        assignments: dict[str, bytes] | None = None,
        *,
        protocol: str = "range",
        protocol_type: str = "consumer",
    ) -> Any:
        return self.receive(self.send_sync(group, member, assignments, protocol=protocol, protocol_type=protocol_type))

    def send_sync(
        self,
        group: str,
        member: Member,
        assignments: dict[str, bytes] | None = None,
        *,
        protocol: str = "range",
        protocol_type: str = "consumer",
    ) -> tuple[int, int, int]:
        return self.send(
            14,
            5,
            group_id=group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[{"member_id": m, "assignment": a} for m, a in (assignments or {}).items()],
        )

    def heartbeat(self, group: str, member: Member) -> ErrorCode:
        error: ErrorCode = self.call(
            12,
            4,
            group_id=group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        ).error_code
        return error

    def leave(self, group: str, member_id: str, instance_id: str | None = None) -> ErrorCode:
        answer = self.call(
            13,
            5,
            group_id=group,
            members=[{"member_id": member_id, "group_instance_id": instance_id, "reason": None}],
        )
        error: ErrorCode = answer.members[0].error_code
        return error

    def describe(self, group: str, version: int = 6) -> Any:
        return self.call(15, version, groups=[group], include_authorized_operations=False).groups[0]

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, Any]:
        answer = self.call(16, 5, states_filter=list(states), types_filter=list(types))
        return {g.group_id: g for g in answer.groups}

    def delete(self, *groups: str) -> list[ErrorCode]:
        return [r.error_code for r in self.call(42, 2, groups_names=list(groups)).results]

    def stable_alone(self, group: str, **options: Any) -> Member:
        """A group of one, with its assignment."""
        self.coordinator(group, 0)
        joined = self.join_new(group, **options)
        assert joined.error_code is ErrorCode.none, joined
        assert joined.leader == joined.member_id
        member = Member(joined.member_id, joined.generation_id, options.get("instance_id"))
        answer = self.sync(group, member, {member.member_id: b"mine"})
        assert (answer.error_code, answer.assignment) == (ErrorCode.none, b"mine")
        return member
