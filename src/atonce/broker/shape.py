"""Walks a request by its schema and checks every length and count against the bytes that are there.

kio's native reader sizes its arrays from the count on the wire before it looks for the elements: a count of two
billion in a frame of forty bytes ends the process. So nothing reaches kio before this walk has seen its end. It also
counts the elements, as each of them becomes objects and work, and refuses a null where the schema has none: Kafka
closes the connection then, and no handler has to think of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

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

# Ten thousand partitions in one request are twenty thousand elements where each has an array of its own.
MOST_ELEMENTS = 50_000
_MOST_HEADER_TAGS = 100


class MalformedRequest(UsageError):
    """The peer sent bytes that are no request; its connection is closed and nothing else happens."""


class Budget:
    """How many elements a request may still have."""

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_ELEMENTS) -> None:
        self.left = left

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise MalformedRequest(f"{-self.left} elements more in one request than we take")


# From (bytes, position) to the position after the value.
Walk = Callable[[bytes, int, Budget], int]


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
    return lambda data, position, budget: _need(data, position, size)


def _compact_bytes(nullable: bool) -> Walk:
    def walk(data: bytes, position: int, budget: Budget) -> int:
        length, position = read_uvarint(data, position)
        return _null(nullable, position) if length == 0 else _need(data, position, length - 1)

    return walk


def _legacy_bytes(size: Struct, nullable: bool) -> Walk:
    def walk(data: bytes, position: int, budget: Budget) -> int:
        (length,) = size.unpack_from(data, position)
        position += size.size
        return _null(nullable, position) if length == -1 else _need(data, position, length)

    return walk


def _null(allowed: bool, position: int) -> int:
    if not allowed:
        raise MalformedRequest(f"a null before byte {position}, where there must be a value")
    return position


def _count(data: bytes, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = read_uvarint(data, position)
        return count - 1, position
    (count,) = _INT32.unpack_from(data, position)
    return count, position + 4


def _array(element: Walk, smallest: int, fixed: bool, flexible: bool, nullable: bool) -> Walk:
    def walk(data: bytes, position: int, budget: Budget) -> int:
        count, position = _count(data, position, flexible)
        if count <= 0:
            if count < -1:
                raise MalformedRequest(f"an array of {count} elements at byte {position}")
            return position if count == 0 else _null(nullable, position)
        end = _need(data, position, count * smallest)
        budget.take(count)
        if fixed:
            return end
        for _ in range(count):
            position = element(data, position, budget)
        return position

    return walk


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> tuple[Walk, int, bool]:
    """The walk, the fewest bytes a value takes, and whether every value takes exactly that many."""
    if kafka_type in FIXED_BYTES:
        return _fixed(FIXED_BYTES[kafka_type]), FIXED_BYTES[kafka_type], True
    if flexible:
        return _compact_bytes(nullable), 1, False
    size = _INT16 if kafka_type == "string" else _INT32
    return _legacy_bytes(size, nullable), size.size, False


def _may_be_null(kind: Any) -> bool:
    return get_origin(kind) in (UnionType, Union) and NoneType in get_args(kind)


def _field(field: dataclasses.Field[Any], flexible: bool) -> tuple[Walk, int]:
    kind = classify_field(field)
    nullable = _may_be_null(field.type)
    is_array = not isinstance(kind, EntityField | PrimitiveField)
    if isinstance(kind, EntityField | EntityTupleField):
        element, smallest, fixed = *entity_walk(kind.type_), False
        if isinstance(kind, EntityField) and nullable and get_field_tag(field) is None:
            return _nullable(element), 1
    else:
        inner = is_array and is_optional(field) and not nullable
        element, smallest, fixed = _primitive(field.metadata["kafka_type"], flexible, inner if is_array else nullable)
    if not is_array:
        return element, smallest
    return _array(element, smallest, fixed, flexible, nullable), 1 if flexible else 4


def _nullable(element: Walk) -> Walk:
    def walk(data: bytes, position: int, budget: Budget) -> int:
        marker = data[position]
        return position + 1 if marker == 0xFF else element(data, position + 1, budget)

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

    def walk_entity(data: bytes, position: int, budget: Budget) -> int:
        for step in walks:
            position = step(data, position, budget)
        return _walk_tags(tagged, data, position, budget) if flexible else position

    return walk_entity, max(1, smallest + (1 if flexible else 0))


def _walk_tags(known: dict[int, Walk], data: bytes, position: int, budget: Budget) -> int:
    count, position = read_uvarint(data, position)
    if count:
        budget.take(count)
    for _ in range(count):
        number, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = _need(data, position, size)
        walk = known.get(number)
        if walk is not None and walk(data, position, budget) != end:
            raise MalformedRequest(f"tagged field {number} does not fill its {size} bytes at byte {position}")
        position = end
    return position


def skip_tags(data: bytes, position: int) -> int:
    """The position after tagged fields of which none is of interest."""
    return _walk_tags({}, data, position, Budget(_MOST_HEADER_TAGS))


def check_shape(entity: Any, data: bytes, position: int) -> None:
    """Raises MalformedRequest unless `data` holds a whole value of `entity` at `position`.

    Bytes after it are ignored, as Kafka does: librdkafka leaves three of them behind a Metadata request for all topics.
    """
    walk, _ = entity_walk(entity)
    try:
        walk(data, position, Budget())
    except (IndexError, ArithmeticError) as error:
        raise MalformedRequest(f"the request ends inside a field: {error}") from error
    except Exception as error:
        if isinstance(error, MalformedRequest):
            raise
        raise MalformedRequest(f"{entity.__name__}: {error}") from error
