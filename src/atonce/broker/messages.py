"""Requests read and responses written, in every version of every API, with kio's classes.

A handler is asked and answers with the field names of the newest version (`forms`); `build` drops what an older version
does not know and fills in what was not given. Times are milliseconds where kio wants a timedelta.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
from kio.static.constants import EntityType

from atonce.broker.forms import complete, lowered, raising
from atonce.broker.sending import Bytes, Part
from atonce.broker.shape import FIXED_BYTES, MalformedRequest, check_shape, entity_walk, skip_tags
from atonce.errors import InvariantError

_HEADER = Struct(">hhi")
_INT16 = Struct(">h")
_FRAME_V0 = Struct(">ii")
_FRAME_V1 = Struct(">iib")
# Values of a response that are encoded in one go: about ten milliseconds.
_HEAVY = 5_000


@dataclasses.dataclass(frozen=True, slots=True)
class RequestHeader:
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int  # where the body starts


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """A response body that a handler has serialised itself: sent as it is, in pieces, without a copy."""

    parts: Sequence[Part]

    @property
    def is_stored(self) -> bool:
        """Whether something of it is still in a file, and is read when there is room for it."""
        return not all(isinstance(part, Bytes) for part in self.parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """A response as its handler gave it: plain values, which become bytes when it is this answer's turn."""

    api_key: int
    version: int
    values: Mapping[str, Any]

    def build(self) -> Any:
        values = lowered(self.api_key, self.version, self.values)
        return build(response_type(self.api_key, self.version), values)

    @property
    def is_heavy(self) -> bool:
        """Whether so much is in it that others would wait while it is encoded."""
        return _weigh(self.values, _HEAVY) >= _HEAVY


def _weigh(value: Any, enough: int) -> int:
    """The number of values in it; not counted beyond `enough`."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return 1
    found = 1
    for one in value:
        found += _weigh(one, enough - found)
        if found >= enough:
            break
    return found


def known_versions(api_key: int) -> range:
    """The versions that kio has a schema for; empty for an unknown API."""
    versions = schema_name_map.get(api_key_map.get(api_key, ""), {})
    return range(min(versions), max(versions) + 1) if versions else range(0)


def read_header(frame: bytes) -> RequestHeader:
    """The header of any request of a known API. ApiVersions is readable in versions still unknown to us."""
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame, 0)
        (length,) = _INT16.unpack_from(frame, 8)
    except Exception as error:
        raise MalformedRequest("a frame too short for a request header") from error
    position = 10
    client_id = None
    if length >= 0:
        if position + length > len(frame):
            raise MalformedRequest(f"a client id of {length} bytes in a frame of {len(frame)}")
        client_id = bytes(frame[position : position + length]).decode("utf-8", "replace")
        position += length
    elif length != -1:
        raise MalformedRequest(f"a client id of {length} bytes")
    if flexible_header(api_key, version):
        position = _skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _skip_tags(frame: bytes, position: int) -> int:
    try:
        return skip_tags(frame, position)
    except IndexError as error:
        raise MalformedRequest("a frame that ends inside the request header") from error


@cache
def flexible_header(api_key: int, version: int) -> bool:
    versions = known_versions(api_key)
    if not versions:
        return False
    if version > versions[-1]:
        version = versions[-1]
    if version not in versions:
        return False
    return int(load_request_schema(api_key, version).__header_schema__.__version__) >= 2


@cache
def _request_reader(api_key: int, version: int) -> tuple[type[Any], Callable[[bytes, int], Any]]:
    """The class of that version, and what reads a request into its newest form."""
    entity = load_request_schema(api_key, version)
    newest = load_request_schema(api_key, known_versions(api_key)[-1])
    complete(entity, newest, _missing)
    reader = entity_reader(entity)
    raised = raising(api_key, version)
    if raised is None:
        return entity, lambda data, position: reader(data, position)[0]
    kind, values = raised
    complete(kind, newest, _missing)
    return entity, lambda data, position: build(kind, values(reader(data, position)[0]))


_loaded: set[tuple[int, int]] = set()


def is_loaded(api_key: int, version: int) -> bool:
    """Whether messages of this API and version can be read and written at once. Unknown ones are not read at all."""
    return (api_key, version) in _loaded or version not in known_versions(api_key)


def load(api_key: int, version: int) -> None:
    """Import and prepare all that messages of this API and version need: up to 0.1 s, so not where others wait."""
    entity: Any = _request_reader(api_key, version)[0]
    entity_walk(entity)
    _response_codec(api_key, version)
    reply(api_key, version, {})
    flexible_header(api_key, version)
    _loaded.add((api_key, version))


def read_request(header: RequestHeader, frame: bytes) -> Any:
    """The body in its newest form."""
    entity, reader = _request_reader(header.api_key, header.version)
    check_shape(entity, frame, header.body)
    try:
        return reader(frame, header.body)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the native reader is no Exception
        raise MalformedRequest(f"{entity.__name__}: {type(error).__name__}: {error}") from error


@cache
def response_type(api_key: int, version: int) -> type[Any]:
    return load_response_schema(api_key, version)


@cache
def _response_codec(api_key: int, version: int) -> tuple[Callable[[Any, Any], None], bool]:
    entity = response_type(api_key, version)
    return entity_writer(entity), int(entity.__header_schema__.__version__) >= 1


def encode_response(api_key: int, version: int, correlation_id: int, response: Any) -> list[Part]:
    """The frame in parts: size, header, body."""
    writer, flexible = _response_codec(api_key, version)
    if isinstance(response, Raw):
        parts: list[Part] = list(response.parts)
    else:
        buffer = io.BytesIO()
        writer(buffer, response.build() if isinstance(response, Reply) else response)
        parts = [buffer.getvalue()]
    size = sum(len(part) for part in parts)
    if flexible:
        parts.insert(0, _FRAME_V1.pack(size + 5, correlation_id, 0))
    else:
        parts.insert(0, _FRAME_V0.pack(size + 4, correlation_id))
    return parts


def encode_body(reply: Reply) -> Raw:
    """The same in two steps: for a thread that has no connection."""
    writer, _ = _response_codec(reply.api_key, reply.version)
    buffer = io.BytesIO()
    writer(buffer, reply.build())
    return Raw([buffer.getvalue()])


def milliseconds(value: datetime.timedelta) -> int:
    """A time of a request, in Kafka's unit."""
    return (value.days * 86_400 + value.seconds) * 1000 + value.microseconds // 1000


def build(entity: Any, values: Mapping[str, Any]) -> Any:
    """One kio value from plain values: nested mappings and sequences become kio's classes."""
    makers, accepted = _makers(entity)
    for name in values:
        if name not in accepted:
            raise InvariantError(f"no version of {entity.__name__} has a field {name!r}")
    return entity(**{name: maker(values[name]) if name in values else missing() for name, maker, missing in makers})


def reply(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """A response of that version."""
    return build(response_type(api_key, version), values)


_Maker = tuple[str, Callable[[Any], Any], Callable[[], Any]]


@cache
def _makers(entity: Any) -> tuple[list[_Maker], frozenset[str]]:
    makers = [(field.name, _maker(field), _missing(field)) for field in dataclasses.fields(entity)]
    return makers, _names_of_all_versions(
        int(entity.__api_key__), entity.__module__.rsplit(".", 1)[-1], entity.__name__
    )


@cache
def _names_of_all_versions(api_key: int, side: str, class_name: str) -> frozenset[str]:
    names: set[str] = set()
    for version in known_versions(api_key):
        module = load_payload_module(api_key, version, EntityType.request if side == "request" else EntityType.response)
        entity = getattr(module, class_name, None)
        if entity is not None:
            names.update(field.name for field in dataclasses.fields(entity))
    return frozenset(names)


def _maker(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    kind = classify_field(field)
    if isinstance(kind, EntityTupleField):
        inner = kind.type_
        return lambda values: (
            None if values is None else tuple(build(inner, v) if isinstance(v, Mapping) else v for v in values)
        )
    if isinstance(kind, EntityField):
        single = kind.type_
        return lambda value: build(single, value) if isinstance(value, Mapping) else value
    if kind.is_array:
        return lambda values: None if values is None else tuple(values)
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return lambda ms: datetime.timedelta(milliseconds=ms) if isinstance(ms, int) else ms
    if kafka_type == "datetime_i64":
        return _instant
    if kafka_type == "error_code":
        return lambda code: code if isinstance(code, ErrorCode) else ErrorCode(code)
    return lambda value: value


def _instant(ms: Any) -> Any:
    if not isinstance(ms, int):
        return ms
    return None if ms < 0 else datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def _missing(field: dataclasses.Field[Any]) -> Callable[[], Any]:
    if field.default is not dataclasses.MISSING:
        default = field.default
        return lambda: default
    kind = classify_field(field)
    if kind.is_array:
        return tuple
    if is_optional(field):
        return lambda: None
    if isinstance(kind, EntityField):
        inner = kind.type_
        return lambda: build(inner, {})
    kafka_type = field.metadata["kafka_type"]
    if kafka_type == "error_code":
        return lambda: ErrorCode.none
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta
    if kafka_type == "string":
        return str
    if kafka_type == "bool":
        return bool
    return int if kafka_type in FIXED_BYTES else bytes


__all__ = (
    "ErrorCode",
    "MalformedRequest",
    "Raw",
    "Reply",
    "RequestHeader",
    "build",
    "encode_body",
    "encode_response",
    "is_loaded",
    "known_versions",
    "load",
    "milliseconds",
    "read_header",
    "read_request",
    "reply",
    "response_type",
)
