"""An upsert into an Iceberg table as one snapshot: files with older rows of the keys are written anew without them.

The library's own upsert makes three snapshots, between which a reader sees half a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from atonce.connectors.lake.names import merged_stem
from atonce.connectors.lake.parquet import Files, ParquetTask, WrittenFile
from atonce.connectors.lake.upsert import Upsert

_LISTED = 200
"""Keys that are named one by one when files are looked for; more go by the smallest and the largest."""
_STORED, _NEW = "__atonce_stored", "__atonce_new"


def merged(
    table: Table, task: ParquetTask, files: Sequence[WrittenFile], upsert: Upsert
) -> tuple[list[DataFile], list[WrittenFile]]:
    """(the table's files that go, files that come). `files` are of the batch alone: the table never names them."""
    rows = upsert.newest(pa.concat_tables([_read(task, file.name) for file in files]))
    gone, staying = [], []
    for found in table.scan(row_filter=_among(rows, upsert.keys)).plan_files():
        stored = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([found])
        stored = stored.select(task.schema.names).cast(task.schema)
        replaced, older = _compared(stored, rows, upsert)
        if len(older):
            rows = rows.filter(pc.invert(pc.is_in(pa.array(range(rows.num_rows)), value_set=older)))
        if len(replaced):
            keep = pc.invert(pc.is_in(pa.array(range(stored.num_rows)), value_set=replaced))
            gone.append(found.file)
            staying.append(stored.filter(keep))
    written = Files(task, merged_stem(files[0].name))
    for each in pa.concat_tables([*staying, rows]).to_batches(max_chunksize=65_536):
        written.add(pa.RecordBatch.from_arrays(each.columns, schema=task.schema))
    return gone, written.finish()


def _read(task: ParquetTask, name: str) -> Any:
    with task.storage.read(name) as stream:
        found = pq.read_table(stream)
    missing = [field for field in task.schema if field.name not in found.schema.names]
    for field in missing:  # a column of the table that the rows do not have
        found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found.select(task.schema.names).cast(task.schema)


def _among(rows: Any, keys: Sequence[str]) -> BooleanExpression:
    """Where rows of these keys can be: more than those is fine, fewer is not."""
    first = rows.column(keys[0])
    values = pc.unique(first)
    if len(values) <= _LISTED:
        return In(keys[0], tuple(values.to_pylist()))
    least, most = pc.min(first).as_py(), pc.max(first).as_py()
    return And(GreaterThanOrEqual(keys[0], least), LessThanOrEqual(keys[0], most))


def _compared(stored: Any, rows: Any, upsert: Upsert) -> tuple[Any, Any]:
    """(places of stored rows that a newer one replaces, places of rows that are older than the stored one)."""
    keys, order = list(upsert.keys), upsert.compared(rows.schema)
    left = stored.select([*keys, *order]).append_column(_STORED, pa.array(range(stored.num_rows), pa.int64()))
    right = rows.select([*keys, *order]).append_column(_NEW, pa.array(range(rows.num_rows), pa.int64()))
    right = right.rename_columns([*keys, *(f"{_NEW} {name}" for name in order), _NEW])
    pairs = left.join(right, keys=keys, join_type="inner")
    newer = pa.array([not order] * pairs.num_rows)
    for name in reversed(order):
        ours, theirs = pairs.column(f"{_NEW} {name}"), pairs.column(name)
        none, least = pc.is_null(ours), pc.is_null(theirs)
        larger = pc.or_(pc.fill_null(pc.greater(ours, theirs), False), pc.and_(pc.invert(none), least))
        equal = pc.or_(pc.fill_null(pc.equal(ours, theirs), False), pc.and_(none, least))
        newer = pc.or_(larger, pc.and_(equal, newer))
    replaced = pairs.column(_STORED).filter(newer).combine_chunks()
    return replaced, pairs.column(_NEW).filter(pc.invert(newer)).combine_chunks()
