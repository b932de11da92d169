"""The result of a plain Spark batch, as the records or rows that a clean run is compared with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from atonce.connectors.contract import Topic
from atonce.verify.audit.identity import Out
from atonce.verify.audit.output import row_out
from atonce.verify.checks.partitioning import partition_of

RECORD_COLUMNS = ("key", "value", "headers", "partition", "timestamp")
"""What a batch's columns may be when they become records of a topic."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_records(path: Path, topic: Topic, partitions: int, sent_from_ms: int) -> tuple[Out, ...]:
    """A record's partition is the one that its row names, or that of its key; -1: nobody can know."""
    table = _as_bytes(parquet.read_table(path))
    rows = table.to_pylist()
    return tuple(_record(row, at, topic, partitions, sent_from_ms) for at, row in enumerate(rows))


def _record(row: dict[str, Any], at: int, topic: Topic, partitions: int, sent_from_ms: int) -> Out:
    key, value = row.get("key"), row.get("value")
    partition = row.get("partition")
    if partition is None:
        partition = partition_of(key, partitions, topic.partitioner) if key is not None and topic.partitioner else -1
    headers = tuple((_bytes(one["key"]) or b"", one["value"]) for one in row.get("headers") or ())
    moment = _milliseconds(row.get("timestamp"))
    return Out(
        key,
        value or b"",
        f"batch row {at}",
        partition,
        at,
        0.0,
        value is None,
        headers,
        None if moment is None or moment >= sent_from_ms else moment,
    )


def read_table_rows(path: Path) -> tuple[tuple[Out, ...], frozenset[str]]:
    """The rows, and the columns whose values have one form only."""
    table = parquet.read_table(path)
    exact = frozenset(field.name for field in table.schema if _one_form(field.type))
    rows = _as_bytes(table).to_pylist()
    return tuple(row_out("batch", at, row) for at, row in enumerate(rows, 1)), exact


def _one_form(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _as_bytes(table: pa.Table) -> pa.Table:
    """Text as its bytes: it may be no UTF-8."""
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.binary()))
    return table


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _milliseconds(moment: datetime | int | None) -> int | None:
    return (moment - _EPOCH) // timedelta(milliseconds=1) if isinstance(moment, datetime) else moment
