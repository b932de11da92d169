"""Who may do what: Kafka's access control lists, kept in `acls.json` of the data directory, judged as Kafka judges.

A denial beats every permission; READ, WRITE, DELETE and ALTER include DESCRIBE, and ALTER_CONFIGS includes
DESCRIBE_CONFIGS; super users may do everything. A resource that no entry names is closed, unless
`allow.everyone.if.no.acl.found`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path

from atonce.errors import CorruptLogError
from atonce.local.private import changing, write_private

FILE = "acls.json"
WILDCARD = "*"
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
_FORMAT = 1
_MOST_REMEMBERED = 50_000


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLIED = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}


@dataclass(frozen=True, slots=True)
class Acl:
    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def concerns(self, principal: str, host: str) -> bool:
        return self.principal in (principal, EVERYONE) and self.host in (host, WILDCARD)

    def verdict(self, operation: Operation) -> bool | None:
        """Allowed, denied, or nothing said."""
        if self.permission is Permission.ALLOW:
            return True if self.operation in _IMPLIED.get(operation, (operation, Operation.ALL)) else None
        return False if self.operation in (operation, Operation.ALL) else None


@dataclass(frozen=True, slots=True)
class AclFilter:
    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def fits(self, acl: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._fits_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _fits_name(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        return acl.name == WILDCARD if acl.pattern is Pattern.LITERAL else self.name.startswith(acl.name)


class Acls:
    """The entries, and the judgement. Judgements are remembered until an entry changes."""

    def __init__(self, data: Path, *, super_users: Iterable[str] = (), allow_by_default: bool = False) -> None:
        self._path = data / FILE
        self._super_users = frozenset(super_users)
        self._allow_by_default = allow_by_default
        self._seen: tuple[int, int, int] | None = None
        self._entries: frozenset[Acl] = frozenset()
        self._by_name: dict[tuple[Resource, Pattern, str], list[Acl]] = {}
        self._remembered: dict[tuple[object, ...], bool] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take over what somebody else has written."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            if self._seen is not None:
                self._take(frozenset(), None)
            return
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if mark != self._seen:
            self._take(_read(self._path), mark)

    def _take(self, entries: frozenset[Acl], mark: tuple[int, int, int] | None) -> None:
        by_name: dict[tuple[Resource, Pattern, str], list[Acl]] = {}
        for acl in entries:
            by_name.setdefault((acl.resource, acl.pattern, acl.name), []).append(acl)
        self._entries, self._by_name, self._seen = entries, by_name, mark
        self._remembered = {}

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return sorted((acl for acl in self._entries if wanted.fits(acl)), key=astuple)

    def change(self, change: Callable[[set[Acl]], None]) -> None:
        """Apply `change` to what is on disk, and have it there when this returns."""
        with changing(self._path):
            self.refresh()
            fresh = set(self._entries)
            change(fresh)
            if fresh != self._entries:
                write_private(self._path, _written(fresh))
                self.refresh()

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        key = (principal, host, operation, resource, name)
        # Entries may change in another thread: what was judged by the old ones goes into the old memory.
        remembered = self._remembered
        known = remembered.get(key)
        if known is None:
            known = self._judge(principal, host, operation, resource, name)
            if len(remembered) >= _MOST_REMEMBERED:
                remembered.clear()
            remembered[key] = known
        return known

    def _judge(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        if principal in self._super_users:
            return True
        allowed = named = False
        for acl in self._on(resource, name):
            named = True
            verdict = acl.verdict(operation) if acl.concerns(principal, host) else None
            if verdict is False:
                return False
            allowed = allowed or verdict is True
        return allowed if named else self._allow_by_default

    def _on(self, resource: Resource, name: str) -> Iterator[Acl]:
        """Entries for this name, for a prefix of it, and for every name."""
        names = {WILDCARD, name}
        for literal in names:
            yield from self._by_name.get((resource, Pattern.LITERAL, literal), ())
        for end in range(len(name) + 1):
            yield from self._by_name.get((resource, Pattern.PREFIXED, name[:end]), ())

    def allows_some(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there can be any resource of this type that the operation is allowed on (KIP-679)."""
        if self.allows(principal, host, operation, resource, "hardcode"):
            return True
        mine = [acl for acl in self._entries if acl.resource is resource and acl.concerns(principal, host)]
        denied = [acl for acl in mine if acl.verdict(operation) is False]
        if any(acl.pattern is Pattern.LITERAL and acl.name == WILDCARD for acl in denied):
            return False
        return any(not _is_covered(acl, denied) for acl in mine if acl.verdict(operation) is True)


def _is_covered(acl: Acl, denied: list[Acl]) -> bool:
    """Whether a denial takes away all that this entry gives."""
    if acl.pattern is Pattern.LITERAL and acl.name == WILDCARD:
        return False
    return any(
        acl.name.startswith(other.name)
        if other.pattern is Pattern.PREFIXED
        else acl.pattern is Pattern.LITERAL and acl.name == other.name
        for other in denied
    )


def full_use(principal: str, prefix: str) -> list[Acl]:
    """Everything on the topics, groups and transactional ids that begin so; `*` stands for all."""
    pattern = Pattern.LITERAL if prefix == WILDCARD else Pattern.PREFIXED
    kinds = (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
    return [Acl(kind, prefix, pattern, principal, WILDCARD, Operation.ALL, Permission.ALLOW) for kind in kinds]


def super_users(text: str) -> list[str]:
    """`User:alice;User:bob`, as Kafka separates them: names of certificates have commas."""
    return [word.strip() for word in text.split(";") if word.strip()]


def _read(path: Path) -> frozenset[Acl]:
    try:
        content = json.loads(path.read_text())
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}, expected {_FORMAT}")
        return frozenset(
            Acl(
                Resource[one["resource"]],
                str(one["name"]),
                Pattern[one["pattern"]],
                str(one["principal"]),
                str(one["host"]),
                Operation[one["operation"]],
                Permission[one["permission"]],
            )
            for one in content["acls"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(f"{path} is not a list of ACLs ({error!r}). Put it back from a copy.") from error


def _written(entries: Iterable[Acl]) -> bytes:
    listed = [
        {
            "resource": acl.resource.name,
            "name": acl.name,
            "pattern": acl.pattern.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permission": acl.permission.name,
        }
        for acl in sorted(entries, key=astuple)
    ]
    return json.dumps({"format": _FORMAT, "acls": listed}, indent=1).encode() + b"\n"
