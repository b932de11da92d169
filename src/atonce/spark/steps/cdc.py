"""`cdc`: changes of a database, one per record, as rows that say which of them delete. On Arrow columns, as `parse`.

debezium  Debezium's envelope: `before`, `after`, `op`; bare, or under `payload` beside its schema. The tombstone that
          follows a deletion for compaction's sake is left out, and so are messages (`m`)
plain     one object a record: the row's fields, and `op`, which says what became of it

Each row gets a column `deleted`, and a column by which changes of a key are ordered. What is no such change (malformed,
an unknown operation, a truncate, an update without a row) is put aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from atonce.delivery.letters import WHOLE
from atonce.errors import UsageError
from atonce.spark.steps.aside import put_aside
from atonce.spark.steps.parse import Parse, struct_of

FORMATS = ("debezium", "plain")
DELETED = "deleted"
BY_OFFSET = "change_offset"
_UPSERTS = ("c", "r", "u", "i", "create", "read", "insert", "update", "upsert")
_DELETES = ("d", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cdc:
    """What the user asks for; and, on record batches, what does it."""

    format: str
    schema: str
    """The table's columns, as Spark's DDL."""
    order: str | None = None
    """Where a change says how new it is, and its type: `source.lsn bigint`. None: by the record's offset."""
    op: str = "op"
    """The field of a plain change that says what became of the row."""
    inner: Any = field(default=None, repr=False)
    row: Any = field(default=None, repr=False)
    """What reads the record, and the table's row as Arrow's struct; known once they are asked for (`ready`)."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(f"cdc {self.format!r} is not one of: {', '.join(FORMATS)}")
        if not isinstance(self.schema, str) or not self.schema.strip():
            raise UsageError(
                f"cdc: {self.format} needs a schema, the columns of the table, such as: id bigint, name string"
            )
        if self.order is not None and len(self.order.split()) != 2:
            raise UsageError(f"order {self.order!r} is not a field and its type, such as: source.lsn bigint")

    @property
    def column(self) -> str:
        """What of a record is read."""
        return "value"

    @property
    def ordered_by(self) -> str:
        """The column that orders the changes of a key."""
        return BY_OFFSET if self.order is None else self.order.split()[0].rpartition(".")[2]

    @property
    def flat(self) -> str:
        """The first transform behind it: the table's columns, whether the row is deleted, and its order."""
        return f"SELECT value.*, `{DELETED}`, `{self.ordered_by}` FROM input"

    def words(self) -> str:
        order = "its offset" if self.order is None else self.order
        return f"changes in the format {self.format} of a table ({self.schema}), ordered by {order}"

    def ready(self) -> Cdc:
        row, order = self.schema, ""
        if self.order is not None:
            path, kind = self.order.split()
            order = ", " + _nested(path.split("."), kind)
        if self.format == "debezium":
            envelope = f"before struct<{row}>, after struct<{row}>, op string{order}"
            envelope = f"{envelope}, payload struct<{envelope}>"
        else:
            envelope = f"{row}, `{self.op}` string{order}"
        parse = Parse(format="json", schema=envelope).ready()
        return replace(self, inner=parse, row=struct_of(row))

    def gives(self, source: Any) -> Any:
        from atonce.spark.arrow_job import parsed

        made = Parse(format="json", schema=self.schema).gives(source).add(DELETED, "boolean")
        return made.add(self.ordered_by, parsed(f"o {self._order_type()}").fields[0].dataType)

    def _order_type(self) -> str:
        return "bigint" if self.order is None else self.order.split()[1]

    def __call__(self, batch: Any) -> Any:
        read = self.inner(batch)
        values = read.column("value")
        keep = pc.is_valid(values)
        if self.format == "debezium":
            read = read.filter(keep)
            values = values.filter(keep)
        row, op, order = self._debezium(values) if self.format == "debezium" else self._plain(values)
        operation = pc.utf8_lower(pc.fill_null(op, ""))
        deleted = pc.is_in(operation, pa.array(_DELETES))
        known = pc.or_(deleted, pc.is_in(operation, pa.array(_UPSERTS)))
        quiet = pc.equal(operation, "m") if self.format == "debezium" else pa.array(np.zeros(len(row), bool))
        if self.format == "debezium":
            row = _either(deleted, *row)
        good = pc.and_(known, pc.is_valid(row))
        if order is not None:
            good = pc.and_(good, pc.is_valid(order))
        self._set_aside(read, good, quiet, op, row)
        columns = {name: read.column(name) for name in read.schema.names}
        columns["value"] = row
        columns[DELETED] = deleted
        columns[self.ordered_by] = order if order is not None else read.column("offset")
        made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return made.filter(good)

    def _debezium(self, values: Any) -> tuple[Any, Any, Any]:
        """((after, before), op, order); from `payload` where the envelope is in there."""
        inside = pc.struct_field(values, "payload")
        wrapped = pc.is_valid(inside)

        def found(path: Sequence[str]) -> Any:
            return _either(wrapped, pc.struct_field(values, list(path)), pc.struct_field(inside, list(path)))

        order = None if self.order is None else found(self.order.split()[0].split("."))
        return (found(["after"]), found(["before"])), found(["op"]), order

    def _plain(self, values: Any) -> tuple[Any, Any, Any]:
        names = [each.name for each in self.row]
        row = pa.StructArray.from_arrays(
            [pc.struct_field(values, name) for name in names], names=names, mask=pc.is_null(values)
        )
        order = None if self.order is None else pc.struct_field(values, self.order.split()[0].split("."))
        return row, pc.struct_field(values, self.op), order

    def _set_aside(self, read: Any, good: Any, quiet: Any, op: Any, row: Any) -> None:
        bad = np.flatnonzero(pc.invert(pc.or_(good, quiet)).to_numpy(zero_copy_only=False))
        if not len(bad):
            return
        told = []
        for number in bad.tolist():
            place = {name: read.column(name)[number].as_py() for name in ("topic", "partition", "offset")}
            said = op[number].as_py()
            told.append({**place, "index": WHOLE, "reason": self._reason(said, row[number].is_valid)})
        put_aside(told)

    def _reason(self, op: str | None, has_row: bool) -> str:
        if op is None:
            return "it says no operation (op)" if has_row else "it has no value that says what changed"
        if op == "t":
            return "it empties the whole table (op t), which is not done row by row"
        if op.lower() not in (*_UPSERTS, *_DELETES):
            return f"its operation {op!r} is unknown"
        if not has_row:
            return f"its operation is {op!r}, and it brings no row ({'before' if op == 'd' else 'after'})"
        return f"it has no order ({self.order})"


def _either(second: Any, one: Any, other: Any) -> Any:
    """Row by row: of `other` where `second` is true, else of `one`; for every type."""
    count = len(one)
    places = np.arange(count) + np.where(pc.fill_null(second, False).to_numpy(zero_copy_only=False), count, 0)
    return pa.concat_arrays([one, other]).take(pa.array(places))


def _nested(path: Sequence[str], kind: str) -> str:
    """`source.lsn bigint` as the field of a schema."""
    name, *rest = path
    return f"`{name}` {kind}" if not rest else f"`{name}` struct<{_nested(rest, kind)}>"
