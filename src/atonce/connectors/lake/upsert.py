"""Upserts into tables of files: one row of each key goes on, and it replaces a stored one only if that is older.

"Newest" is one order, inside a batch and against the stored row alike: the columns of `order_by`, null before every
value, then the other columns that can be compared. So the row that is left does not depend on where batches were cut.
Without `order_by` the row that came last stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from atonce.delivery.contract import Batch
from atonce.errors import RefusedError, UsageError
from atonce.spark.planning.row_order import RowOrder, of_batch, refusal, why_not

MOST_ROWS = 1_000_000
_PLACE = "__atonce_place"
_COMPARED = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    keys: tuple[str, ...]
    orders: tuple[str, ...] = ()
    most: int = MOST_ROWS
    """Rows of a batch: they go through the driver's memory."""

    @property
    def lasting(self) -> frozenset[str]:
        """Columns that must not be null."""
        return frozenset((*self.keys, *self.orders))

    def refuse_columns(self, schema: Any, where: str) -> None:
        """`schema` is Arrow's, of the rows."""
        for name in (*self.keys, *self.orders):
            if name not in schema.names:
                raise UsageError(
                    f"key or order_by names {name}, and the rows for {where} have {', '.join(schema.names)}"
                )
            if not comparable(schema.field(name).type):
                raise UsageError(f"column {name} of {where} is {schema.field(name).type}, which has no order")

    def refuse_order(self, batch: Batch, where: str) -> None:
        """Where nothing says which of two rows came last: an opaque source, or a shuffle that mixed the rows."""
        if self.orders:
            return
        ordered = batch.plan.start is not None
        shuffled = "Shuffle" in batch.df._jdf.queryExecution().toRdd().toDebugString()
        if ordered and not shuffled:
            return
        found = of_batch(batch.df, self.keys)
        if shuffled and found.kind == "kept":
            found = RowOrder("lost", "the transform shuffles rows, so their order in the input is lost")
        if (reason := why_not(found, ordered)) is not None:
            raise RefusedError(refusal(where, reason))

    def refuse_many(self, rows: int, where: str) -> None:
        if rows > self.most:
            raise RefusedError(
                f"a batch of {rows:,} rows was to be merged into {where}, and max_upsert_rows is {self.most:,}: they "
                "go through the driver's memory. Nothing was committed. Next: make batches smaller "
                "(maxOffsetsPerTrigger), or raise max_upsert_rows."
            )

    def compared(self, schema: Any) -> list[str]:
        """The columns that say which of two rows of a key is newer, if any does."""
        if not self.orders:
            return []
        taken = {*self.keys, *self.orders}
        others = [field.name for field in schema if field.name not in taken and comparable(field.type)]
        return [*self.orders, *others]

    def newest(self, rows: Any) -> Any:
        """One row of each key; `rows` are in the order of the input."""
        if not rows.num_rows:
            return rows
        places = pa.array(range(rows.num_rows), pa.int64())
        if order := self.compared(rows.schema):
            # Null before every value: whether there is one is compared before it.
            by = {str(n): each for n, name in enumerate(order) for each in (rows.column(name),)}
            there = {f"{n} there": pc.is_valid(each) for n, each in by.items()}
            keys = [(part, "ascending") for n in by for part in (f"{n} there", n)]
            places = pc.sort_indices(pa.table({**by, **there}), sort_keys=keys)
        sorted_keys = rows.select(list(self.keys)).take(places)
        numbered = sorted_keys.append_column(_PLACE, places.cast(pa.int64()))
        last = numbered.group_by(list(self.keys), use_threads=False).aggregate([(_PLACE, "last")])
        return rows.take(last.column(f"{_PLACE}_last"))


def comparable(kind: Any) -> bool:
    return any(fits(kind) for fits in _COMPARED)


def newer(pairs: Sequence[tuple[str, str]], otherwise: str = "FALSE") -> str:
    """A condition: the left of each pair, in this order, is larger than the right; `otherwise` when all are equal."""
    condition = otherwise
    for left, right in reversed(pairs):
        equal = f"({left} = {right} OR ({left} IS NULL AND {right} IS NULL))"
        larger = f"{left} > {right} OR ({left} IS NOT NULL AND {right} IS NULL)"
        condition = f"({larger} OR ({equal} AND {condition}))"
    return condition
