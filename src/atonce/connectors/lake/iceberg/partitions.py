"""How an Iceberg table is partitioned: by columns, or by what a transform makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, VoidTransform, parse_transform
from pyiceberg.types import IcebergType

from atonce.errors import UsageError

_CALL = re.compile(r"(?P<word>[a-z]+)\((?:(?P<width>\d+)\s*,\s*)?(?P<column>[^()]+)\)")
_PLAIN = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)
_FIRST_ID = 1000


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    column: str
    kind: IcebergType
    transform: Transform[Any, Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """What each row of a batch is partitioned by; shipped to the tasks."""

    parts: tuple[Part, ...]

    def __call__(self, batch: Any) -> dict[str, Any]:
        return {part.name: self._of(part, batch) for part in self.parts}

    def _of(self, part: Part, batch: Any) -> Any:
        if part.column not in batch.schema.names or isinstance(part.transform, VoidTransform):
            return pa.nulls(batch.num_rows, pa.int32())
        values = batch[part.column]
        if not isinstance(part.transform, IdentityTransform):
            values = part.transform.pyarrow_transform(part.kind)(values)
        if pa.types.is_date(values.type):
            return values.cast(pa.int32())
        return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def column_of(word: str) -> str:
    call = _CALL.fullmatch(word.strip())
    return call["column"].strip() if call else word


def named(by: Sequence[str], schema: Schema, where: str) -> PartitionSpec:
    """The partitions that `partition_by` asks for: `kind`, `day(at)`, `bucket(16, id)`."""
    fields = []
    for number, word in enumerate(by):
        call = _CALL.fullmatch(word.strip())
        column = column_of(word)
        if column not in schema.column_names:
            raise UsageError(
                f"partition_by names {column}, and the rows for {where} have {', '.join(schema.column_names)}"
            )
        field = schema.find_field(column)
        width = f"[{call['width']}]" if call and call["width"] else ""
        try:
            transform = parse_transform(f"{call['word']}{width}" if call else "identity")
            if not transform.can_transform(field.field_type):
                raise ValueError(f"{column} is {field.field_type}")
        except Exception as error:
            raise UsageError(
                f"partition_by {word!r} cannot be had in {where}: {error}. Expected a column, year(), month(), day(), "
                "hour(), bucket(N, column) or truncate(N, column)."
            ) from None
        suffix = f"_{call['word']}{'_' + call['width'] if call['width'] else ''}" if call else ""
        fields.append(
            PartitionField(
                source_id=field.field_id, field_id=_FIRST_ID + number, transform=transform, name=f"{column}{suffix}"
            )
        )
    return PartitionSpec(*fields, spec_id=1)


def words(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """`partition_by`, as the user would write it for this table."""
    found = []
    for field in spec.fields:
        column, word = schema.find_column_name(field.source_id) or "?", str(field.transform)
        width = re.fullmatch(r"(\w+)\[(\d+)\]", word)
        if word == "identity":
            found.append(column)
        elif width:
            found.append(f"{width[1]}({width[2]}, {column})")
        else:
            found.append(f"{word}({column})")
    return tuple(found)


def parts_of(spec: PartitionSpec, schema: Schema, columns: Any, where: str) -> Parts | None:
    """For rows with these columns (Arrow's schema); None where the table has no partitions."""
    parts = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id)
        top = {each.field_id: each for each in schema.fields}.get(field.source_id)
        if column is None or top is None:
            raise UsageError(f"{where} is partitioned by {field.name}, which is no column of its own")
        identity = isinstance(field.transform, IdentityTransform)
        if column in columns.names and identity and not any(fits(columns.field(column).type) for fits in _PLAIN):
            raise UsageError(
                f"{where} is partitioned by {column}, which is {top.field_type}. Expected text, a whole number, a "
                "boolean, a date or a time. Next: cast it in the transform."
            )
        parts.append(Part(field.name, column, top.field_type, field.transform))
    return Parts(tuple(parts)) if parts else None
