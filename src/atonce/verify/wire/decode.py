"""Kafka frames as the verifier sees them: headers, and as much of a body as a rule or a check needs to know.

A message that kio cannot read (a newer version, an unknown API) stays bytes and passes through untouched.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

API_NAMES: dict[int, str] = dict(api_key_map)
API_KEYS: dict[str, int] = {name: key for key, name in API_NAMES.items()}
API_VERSIONS_KEY = API_KEYS["api_versions"]
_BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, crc, attributes, last delta, times, producer id, epoch, sequence, count."""
BATCH_HEAD_BYTES = _BATCH_HEAD.size


@lru_cache(maxsize=512)
def _schemas(api_key: int, version: int) -> tuple[Any, Any] | None:
    try:
        return load_request_schema(api_key, version), load_response_schema(api_key, version)
    except KioIndexError:
        return None


@lru_cache(maxsize=512)
def _reader(schema: Any) -> Callable[[bytes, int], tuple[Any, int]]:
    return entity_reader(schema)


@dataclass(frozen=True, slots=True)
class BatchHead:
    """The fixed head of one record batch."""

    base_offset: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    transactional: bool
    control: bool
    size: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1


def batch_heads(records: bytes | memoryview | None) -> Iterator[BatchHead]:
    """The heads of the whole batches in `records`; a cut-off last one is left out."""
    view, at = memoryview(records or b""), 0
    while at + BATCH_HEAD_BYTES <= len(view):
        base, length, _, magic, _, attributes, _, _, _, pid, epoch, sequence, count = _BATCH_HEAD.unpack_from(view, at)
        if magic != 2 or at + 12 + length > len(view):
            return
        yield BatchHead(
            base, pid, epoch, sequence, count, bool(attributes & 0x10), bool(attributes & 0x20), 12 + length
        )
        at += 12 + length


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request frame (without its length prefix)."""

    frame: bytes
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """Where the body begins in `frame`; -1 when the version is unknown."""

    @property
    def api(self) -> str:
        return API_NAMES.get(self.api_key, f"api-{self.api_key}")

    def body(self) -> Any | None:
        schemas = _schemas(self.api_key, self.version)
        if schemas is None or self.body_at < 0:
            return None
        try:
            return _reader(schemas[0])(self.frame, self.body_at)[0]
        except Exception:  # kio raises its own and struct's; an unreadable body passes through untouched
            return None

    def with_body(self, body: Any) -> Request:
        frame = self.frame[: self.body_at] + encode(body)
        return Request(
            frame=frame,
            api_key=self.api_key,
            version=self.version,
            correlation_id=self.correlation_id,
            client_id=self.client_id,
            body_at=self.body_at,
        )

    def response_body(self, frame: bytes) -> tuple[Any, int] | None:
        """The body of this request's response, and where it begins in `frame`."""
        schemas = _schemas(self.api_key, self.version)
        if schemas is None:
            return None
        at = 4
        if schemas[1].__flexible__ and self.api_key != API_VERSIONS_KEY:
            at += 1  # an empty tag section; brokers send no header tags
            if frame[4] != 0:
                return None
        try:
            return _reader(schemas[1])(frame, at)[0], at
        except Exception:  # as above
            return None

    def response_frame(self, body: Any) -> bytes:
        flexible = body.__flexible__ and self.api_key != API_VERSIONS_KEY
        return struct.pack(">i", self.correlation_id) + (b"\0" if flexible else b"") + encode(body)


def encode(body: Any) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(body))(buffer, body)
        return buffer.getvalue()


def parse_request(frame: bytes) -> Request | None:
    """The header of a request frame, or None when these bytes are not one."""
    if len(frame) < 10:
        return None
    api_key, version, correlation_id, client_length = struct.unpack_from(">hhih", frame)
    if client_length > len(frame) - 10:
        return None
    at = 10 + max(client_length, 0)
    client_id = frame[10:at].decode(errors="replace") if client_length >= 0 else None
    schemas = _schemas(api_key, version)
    if schemas is None:
        at = -1
    elif schemas[0].__flexible__:
        at = at + 1 if len(frame) > at and frame[at] == 0 else -1
    return Request(
        frame=frame,
        api_key=api_key,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body_at=at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules and the history need to know of a request."""

    topics: tuple[str, ...] = ()
    group: str | None = None
    member: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    epoch: int | None = None
    committed: bool | None = None
    acks: int | None = None
    batches: tuple[tuple[str, int, BatchHead], ...] = ()
    """Produce: (topic, partition, head) of every batch."""
    offsets: tuple[tuple[str, int, int], ...] = ()
    """Fetch: where it reads; OffsetCommit and TxnOffsetCommit: what is committed."""
    timeout_ms: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


DECODED = frozenset(
    [
        "produce",
        "fetch",
        "offset_commit",
        "txn_offset_commit",
        "end_txn",
        "init_producer_id",
        "add_partitions_to_txn",
        "add_offsets_to_txn",
        "join_group",
        "sync_group",
        "heartbeat",
        "leave_group",
        "consumer_group_heartbeat",
    ]
)


def facts(request: Request, topic_name: Callable[[Any], str]) -> Facts:
    """`topic_name` gives the name of a topic id (newer versions carry ids only)."""
    if request.api not in DECODED or (body := request.body()) is None:
        return Facts()
    return _EXTRACT.get(request.api, _general)(body, topic_name)


def _topic(entry: Any, topic_name: Callable[[Any], str]) -> str:
    for name in ("name", "topic"):
        value = getattr(entry, name, None)
        if value:
            return str(value)
    return topic_name(getattr(entry, "topic_id", None))


def _produce(body: Any, topic_name: Callable[[Any], str]) -> Facts:
    batches = tuple(
        (name, int(part.index), head)
        for entry in body.topic_data
        for name in (_topic(entry, topic_name),)
        for part in entry.partition_data
        for head in batch_heads(part.records)
    )
    first = batches[0][2] if batches else None
    return Facts(
        topics=tuple(_topic(entry, topic_name) for entry in body.topic_data),
        transactional_id=body.transactional_id,
        producer_id=first.producer_id if first else None,
        epoch=first.epoch if first else None,
        acks=int(body.acks),
        batches=batches,
    )


def _fetch(body: Any, topic_name: Callable[[Any], str]) -> Facts:
    offsets = tuple(
        (name, int(part.partition), int(part.fetch_offset))
        for entry in body.topics
        for name in (_topic(entry, topic_name),)
        for part in entry.partitions
    )
    return Facts(topics=tuple({name for name, _, _ in offsets}), offsets=offsets)


def _commit(body: Any, topic_name: Callable[[Any], str]) -> Facts:
    offsets = tuple(
        (name, int(part.partition_index), int(part.committed_offset))
        for entry in body.topics
        for name in (_topic(entry, topic_name),)
        for part in entry.partitions
    )
    return Facts(
        topics=tuple({name for name, _, _ in offsets}),
        group=body.group_id,
        member=body.member_id,
        transactional_id=getattr(body, "transactional_id", None),
        producer_id=getattr(body, "producer_id", None),
        epoch=getattr(body, "producer_epoch", None),
        offsets=offsets,
    )


def _general(body: Any, topic_name: Callable[[Any], str]) -> Facts:
    timeout = getattr(body, "transaction_timeout", None)
    return Facts(
        group=getattr(body, "group_id", None),
        member=getattr(body, "member_id", None),
        transactional_id=getattr(body, "transactional_id", getattr(body, "v3_and_below_transactional_id", None)),
        producer_id=getattr(body, "producer_id", getattr(body, "v3_and_below_producer_id", None)),
        epoch=getattr(body, "producer_epoch", getattr(body, "v3_and_below_producer_epoch", None)),
        committed=getattr(body, "committed", None),
        timeout_ms=int(timeout.total_seconds() * 1000) if timeout is not None else None,
    )


_EXTRACT: dict[str, Callable[[Any, Callable[[Any], str]], Facts]] = {
    "produce": _produce,
    "fetch": _fetch,
    "offset_commit": _commit,
    "txn_offset_commit": _commit,
}


def error_codes(body: Any) -> tuple[int, ...]:
    """Every error code in a response body that is not zero, wherever it stands."""
    found: list[int] = []
    stack = [body]
    while stack:
        at = stack.pop()
        for name in getattr(type(at), "__slots__", ()):
            value = getattr(at, name)
            if name in ("error_code", "partition_error_code") and int(value) != 0:
                found.append(int(value))
            elif isinstance(value, tuple) and value and hasattr(type(value[0]), "__slots__"):
                stack.extend(value)
    return tuple(found)
