"""Arrow's types as Iceberg's and back, with the ids by which Iceberg knows a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from atonce.errors import UsageError

_PLAIN = (
    (pa.types.is_boolean, ice.BooleanType),
    (pa.types.is_int64, ice.LongType),
    (lambda kind: pa.types.is_signed_integer(kind), ice.IntegerType),
    (pa.types.is_float32, ice.FloatType),
    (pa.types.is_float64, ice.DoubleType),
    (pa.types.is_date32, ice.DateType),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), ice.StringType),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), ice.BinaryType),
)


def with_columns(schema: Schema, last_id: int, added: Sequence[Any]) -> Schema:
    """The schema with these columns (Arrow's fields) behind its own, nullable."""
    ids = count(last_id + 1)
    fields = [
        ice.NestedField(field_id=next(ids), name=each.name, field_type=_of_arrow(each.type, ids), required=False)
        for each in added
    ]
    return Schema(
        *schema.fields, *fields, schema_id=schema.schema_id + 1, identifier_field_ids=list(schema.identifier_field_ids)
    )


def as_arrow(schema: Schema) -> Any:
    """With the ids in each field's metadata, as a Parquet file carries them."""
    return pa.schema([_small_field(field) for field in schema_to_pyarrow(schema)])


def _of_arrow(kind: Any, ids: Iterator[int]) -> ice.IcebergType:
    for fits, made in _PLAIN:
        if fits(kind):
            return made()
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return ice.TimestampType() if kind.tz is None else ice.TimestamptzType()
    if pa.types.is_struct(kind):
        return ice.StructType(
            *(
                ice.NestedField(field_id=next(ids), name=each.name, field_type=_of_arrow(each.type, ids))
                for each in kind
            )
        )
    if pa.types.is_list(kind):
        return ice.ListType(element_id=next(ids), element=_of_arrow(kind.value_type, ids), element_required=False)
    if pa.types.is_map(kind):
        return ice.MapType(
            key_id=next(ids),
            key_type=_of_arrow(kind.key_type, ids),
            value_id=next(ids),
            value_type=_of_arrow(kind.item_type, ids),
            value_required=False,
        )
    raise UsageError(f"Iceberg has no type for {kind}. Next: cast it in the transform.")


def _small_field(field: Any) -> Any:
    return field.with_type(_small(field.type))


def _small(kind: Any) -> Any:
    """Spark's batches have 32-bit offsets; the library says 64 for every text."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(each) for each in kind])
    if pa.types.is_large_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    return kind
