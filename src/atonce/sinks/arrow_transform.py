"""A user's function on Arrow record batches: what it may give, and all of it as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def transformed(transform: Any, batch: Any) -> Iterator[Any]:
    """It may give a record batch, a table, or any number of record batches; None is no function at all."""
    if transform is None:
        yield batch
        return
    result = transform(batch)
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.to_batches()
    else:
        yield from result


def as_declared(rows: Any, declared: Any) -> Any:
    """The columns that the user declared, in their order and types; others are left out."""
    if rows.schema.equals(declared):
        return rows
    if missing := [name for name in declared.names if name not in rows.schema.names]:
        raise ValueError(f"the Arrow function gave the columns {rows.schema.names}, without the declared {missing}")
    return rows.select(declared.names).cast(declared)


def together(found: Iterable[Any]) -> list[Any]:
    """All of it as one record batch, if all of it has the same columns."""
    batches = [rows for rows in found if rows.num_rows]
    alike = len(batches) > 1 and all(rows.schema.equals(batches[0].schema) for rows in batches)
    return [pa.concat_batches(batches)] if alike else batches
