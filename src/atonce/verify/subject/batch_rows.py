"""The result of a plain Spark batch, as the records or rows that a clean run is compared with."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as parquet

from atonce.verify.audit.identity import Out
from atonce.verify.audit.output import row_out

RECORD_COLUMNS = ("key", "value")
"""What of a batch's columns is compared when they become records of a topic."""


def read_rows(path: Path, *, records: bool) -> tuple[Out, ...]:
    table = parquet.read_table(path)
    if not records:
        return tuple(row_out("batch", at, row) for at, row in enumerate(table.to_pylist(), 1))
    values = [_bytes(value) for value in table["value"].to_pylist()]
    keys = table["key"].to_pylist() if "key" in table.column_names else [None] * len(values)
    return tuple(
        Out(None if key is None else _bytes(key), value, f"batch row {at}", 0, at)
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    )


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
