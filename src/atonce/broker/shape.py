"""Walks a request by its schema and checks every length and count against the bytes that are there.

kio's native reader sizes its arrays from the count on the wire before it looks for the elements: a count of two
billion in a frame of forty bytes ends the process. So nothing reaches kio before this walk has seen its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    is_optional,
)

from atonce.errors import UsageError

_INT16 = Struct(">h")
_INT32 = Struct(">i")

FIXED_BYTES = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "bool": 1,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}

# From (bytes, position) to the position after the value.
Walk = Callable[[bytes, int], int]


class MalformedRequest(UsageError):
    """The peer sent bytes that are no request; its connection is closed and nothing else happens."""


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedRequest(f"a varint of more than five bytes at byte {position}")


def _need(data: bytes, position: int, wanted: int) -> int:
    end = position + wanted
    if wanted < 0 or end > len(data):
        raise MalformedRequest(f"{wanted} bytes announced at byte {position}, {len(data) - position} left")
    return end


def _fixed(size: int) -> Walk:
    return lambda data, position: _need(data, position, size)


def _compact_bytes(data: bytes, position: int) -> int:
    length, position = read_uvarint(data, position)
    return position if length == 0 else _need(data, position, length - 1)


def _legacy_string(data: bytes, position: int) -> int:
    (length,) = _INT16.unpack_from(data, position)
    return position + 2 if length == -1 else _need(data, position + 2, length)


def _legacy_bytes(data: bytes, position: int) -> int:
    (length,) = _INT32.unpack_from(data, position)
    return position + 4 if length == -1 else _need(data, position + 4, length)


def _count(data: bytes, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = read_uvarint(data, position)
        return count - 1, position
    (count,) = _INT32.unpack_from(data, position)
    return count, position + 4


def _array(element: Walk, smallest: int, fixed: bool, flexible: bool) -> Walk:
    def walk(data: bytes, position: int) -> int:
        count, position = _count(data, position, flexible)
        if count <= 0:
            if count < -1:
                raise MalformedRequest(f"an array of {count} elements at byte {position}")
            return position
        end = _need(data, position, count * smallest)
        if fixed:
            return end
        for _ in range(count):
            position = element(data, position)
        return position

    return walk


def _primitive(kafka_type: str, flexible: bool) -> tuple[Walk, int, bool]:
    """The walk, the fewest bytes a value takes, and whether every value takes exactly that many."""
    if kafka_type in FIXED_BYTES:
        return _fixed(FIXED_BYTES[kafka_type]), FIXED_BYTES[kafka_type], True
    if flexible:
        return _compact_bytes, 1, False
    if kafka_type == "string":
        return _legacy_string, 2, False
    return _legacy_bytes, 4, False


def _field(field: dataclasses.Field[Any], flexible: bool) -> tuple[Walk, int]:
    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        element, smallest, fixed = *entity_walk(kind.type_), False
        if isinstance(kind, EntityField) and is_optional(field) and get_field_tag(field) is None:
            return _nullable(element), 1
    else:
        element, smallest, fixed = _primitive(field.metadata["kafka_type"], flexible)
    if isinstance(kind, EntityField | PrimitiveField):
        return element, smallest
    return _array(element, smallest, fixed, flexible), 1 if flexible else 4


def _nullable(element: Walk) -> Walk:
    def walk(data: bytes, position: int) -> int:
        marker = data[position]
        return position + 1 if marker == 0xFF else element(data, position + 1)

    return walk


@cache
def entity_walk(entity: Any) -> tuple[Walk, int]:
    """The walk over one kio class, and the fewest bytes one of its values takes."""
    flexible = bool(entity.__flexible__)
    walks: list[Walk] = []
    tagged: dict[int, Walk] = {}
    smallest = 0
    for field in dataclasses.fields(entity):
        walk, least = _field(field, flexible)
        tag = get_field_tag(field)
        if tag is None:
            walks.append(walk)
            smallest += least
        else:
            tagged[int(tag)] = walk

    def walk_entity(data: bytes, position: int) -> int:
        for step in walks:
            position = step(data, position)
        if not flexible:
            return position
        count, position = read_uvarint(data, position)
        for _ in range(count):
            tag_number, position = read_uvarint(data, position)
            size, position = read_uvarint(data, position)
            end = _need(data, position, size)
            known = tagged.get(tag_number)
            if known is not None and known(data, position) != end:
                raise MalformedRequest(f"tagged field {tag_number} does not fill its {size} bytes at byte {position}")
            position = end
        return position

    return walk_entity, max(1, smallest + (1 if flexible else 0))


def check_shape(entity: Any, data: bytes, position: int) -> None:
    """Raises MalformedRequest unless `data` holds a whole value of `entity` at `position`.

    Bytes after it are ignored, as Kafka does: librdkafka leaves three of them behind a Metadata request for all topics.
    """
    walk, _ = entity_walk(entity)
    try:
        walk(data, position)
    except (IndexError, ArithmeticError) as error:
        raise MalformedRequest(f"the request ends inside a field: {error}") from error
    except Exception as error:
        if isinstance(error, MalformedRequest):
            raise
        raise MalformedRequest(f"{entity.__name__}: {error}") from error
