"""A user's function on Arrow record batches: what it may give, and all of it as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

ENOUGH_BYTES = 1 << 20


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


def together(found: Iterable[Any], enough: int = ENOUGH_BYTES) -> Iterator[Any]:
    """The same rows in fewer record batches: what is alike and small is joined until it has `enough` bytes."""
    held: list[Any] = []
    size = 0
    for rows in found:
        if held and not rows.schema.equals(held[0].schema):
            yield _joined(held)
            held, size = [], 0
        if rows.num_rows:
            held.append(rows)
            size += int(rows.nbytes)
        if size >= enough:
            yield _joined(held)
            held, size = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
