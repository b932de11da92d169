"""Which columns go into a table of files: those of the rows, if it has them with types that hold every value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from atonce.delivery.letters import ORIGIN
from atonce.errors import UsageError
from atonce.spark.versions import arrow_schema

_IN_PARTITIONS = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


def of_rows(schema: Any, where: str) -> Any:
    """Spark's schema as Arrow's; each column once, whatever its case, and none that only says where a row is from."""
    schema = type(schema)([field for field in schema.fields if field.name not in ORIGIN])
    names = schema.names
    twice = sorted({name for name in names if [each.lower() for each in names].count(name.lower()) > 1})
    if twice:
        raise UsageError(f"the rows for {where} have {' and '.join(twice)}: names there differ by more than case")
    try:
        return arrow_schema(schema)
    except Exception as error:
        raise UsageError(f"the rows for {where} have a type that it cannot hold: {error}") from None


def fitting(rows: Any, table: Any, where: str) -> Any:
    """The table's fields for the columns of the rows, in the order of the table."""
    known = {field.name: field for field in table}
    for field in rows:
        if field.name not in known:
            raise UsageError(
                f"the rows have a column {field.name}, and {where} has not (it has {', '.join(known)}). Next: leave it "
                "out in the transform, add it to the table, or set evolve: true."
            )
        if not _holds(known[field.name].type, field.type):
            raise UsageError(
                f"column {field.name} of the rows is {field.type}, and {known[field.name].type} in {where}. Next: cast "
                "it in the transform."
            )
    given = set(rows.names)
    for field in table:
        if field.name not in given and not field.nullable:
            raise UsageError(
                f"{where} needs the column {field.name}, and the rows have none. Next: add it to the rows."
            )
    return pa.schema([field for field in table if field.name in given])


def refuse_partitions(partition_by: tuple[str, ...], schema: Any, where: str) -> None:
    """Types whose text in the log is the same for every writer."""
    for name in partition_by:
        if name not in schema.names:
            raise UsageError(f"partition_by names {name}, and the rows for {where} have {', '.join(schema.names)}")
        if not any(fits(schema.field(name).type) for fits in _IN_PARTITIONS):
            raise UsageError(
                f"{where} is partitioned by {name}, which is {schema.field(name).type}. Expected text, a whole number, "
                "a boolean or a date. Next: cast it in the transform."
            )
    if set(partition_by) >= set(schema.names):
        raise UsageError(f"{where} is partitioned by all columns of the rows. Next: leave one out of partition_by.")


def _holds(table: Any, rows: Any) -> bool:
    if table == rows or (pa.types.is_timestamp(table) and pa.types.is_timestamp(rows)):
        return bool(table == rows or (table.tz is None) == (rows.tz is None))
    if pa.types.is_integer(table) and pa.types.is_integer(rows):
        return bool(table.bit_width >= rows.bit_width)
    if pa.types.is_float64(table):
        return bool(pa.types.is_float32(rows))
    if pa.types.is_list(table) and pa.types.is_list(rows):
        return _holds_field(table.value_field, rows.value_field)
    if pa.types.is_map(table) and pa.types.is_map(rows):
        return _holds_field(table.key_field, rows.key_field) and _holds_field(table.item_field, rows.item_field)
    if pa.types.is_struct(table) and pa.types.is_struct(rows):
        same = [each.name for each in table] == [each.name for each in rows]
        return same and all(_holds_field(one, other) for one, other in zip(table, rows, strict=True))
    return False


def _holds_field(table: Any, rows: Any) -> bool:
    return bool(table.nullable or not rows.nullable) and _holds(table.type, rows.type)
