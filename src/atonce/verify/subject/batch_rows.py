"""Input as a file for a plain Spark batch, and the batch's result as records or rows, to compare a clean run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from atonce.connectors.kafka.topic import Kafka
from atonce.verify.audit.identity import Out
from atonce.verify.audit.output import row_out
from atonce.verify.subject.feeds import outbox_columns
from atonce.verify.subject.workload import Workload


def write_rows(source: Any, topic: str, workload: Workload, path: Path) -> None:
    """The columns that the pipeline's source would give, as far as they are known beforehand."""
    if type(source).__name__ == "Table":
        columns = outbox_columns(source)
        keys = [(record.key or b"").decode() for record in workload.all]
        made: dict[str, Any] = {source.column: list(range(1, len(keys) + 1)), **dict.fromkeys(columns[:-1], keys)}
        made[columns[-1]] = [record.value.decode() for record in workload.all]
    else:
        offsets, ends = [], dict.fromkeys(range(workload.partitions), 0)
        for record in workload.all:
            offsets.append(ends[record.partition])
            ends[record.partition] += 1
        made = {
            "key": [record.key for record in workload.all],
            "value": [record.value for record in workload.all],
            "topic": [topic] * len(offsets),
            "partition": [record.partition for record in workload.all],
            "offset": offsets,
        }
    parquet.write_table(pa.table(made), path)


def read_rows(path: Path, sink: Any) -> tuple[Out, ...]:
    table = parquet.read_table(path)
    if not isinstance(sink, Kafka):
        rows = table.to_pylist()
        return tuple(row_out("batch", at, list(row), list(row.values())) for at, row in enumerate(rows, 1))
    values = [_bytes(value) for value in table["value"].to_pylist()]
    keys = table["key"].to_pylist() if "key" in table.column_names else [None] * len(values)
    return tuple(
        Out(None if key is None else _bytes(key), value, f"batch row {at}", 0, at)
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    )


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
