"""Rows that cannot be delivered: how they are named to people, and how they stand in a dead-letter table."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from atonce.delivery.contract import Batch
from atonce.errors import UndeliverableRow

POSITION = ("topic", "partition", "offset")
"""Columns of Kafka's that name a row's place in the input, when the DataFrame carries them."""
DEAD_LETTER_COLUMNS = ("pipeline", "batch_id", "input_topic", "input_partition", "input_offset", "reason", "row_json")

_SHOWN = 300


def as_json(row: Mapping[str, Any]) -> str:
    """The row for people and for repair; bytes that are not text stand as base64."""
    return json.dumps({name: _plain(value) for name, value in row.items()}, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


def rows_at(batch: Any, names: Sequence[str], places: Sequence[int]) -> list[dict[str, Any]]:
    """Some rows of a record batch as they are; text that is not UTF-8 stays bytes."""
    raw = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in batch.columns]
    chosen = pa.RecordBatch.from_arrays(raw, names=list(names)).take(pa.array(places))
    found: list[dict[str, Any]] = chosen.to_pylist()
    return found


def bad_row(row: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """One bad row as it travels from a task to the driver."""
    topic, partition, offset = (_plain(row.get(name)) for name in POSITION)
    return {"topic": topic, "partition": partition, "offset": offset, "reason": reason, "row": as_json(row)}


def undeliverable(bad: Mapping[str, Any], table: str, batch: Batch) -> UndeliverableRow:
    """What stops the pipeline: where the row stands in the input, why it does not fit, and what can be done."""
    located = bad.get("offset") is not None
    if located:
        topic = f"topic {bad['topic']}, " if bad.get("topic") else ""
        where = f"{topic}partition {bad.get('partition')}, offset {bad['offset']}"
    else:
        where = f"batch {batch.plan.batch_id}{_span(batch)}"
    shown = str(bad.get("row", ""))
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    error = UndeliverableRow(
        f"a row cannot be delivered to {table}: {bad['reason']}. It comes from {where}. Row: {shown}. Nothing of the "
        'batch was delivered. Next: repair it in the transform, or set on_error="dead-letter" to put such rows aside.'
    )
    error.located = located
    return error


def _span(batch: Batch) -> str:
    start, end = batch.plan.start, batch.plan.end
    if start is None or end is None:
        return ""
    parts = [
        f"{name} from {start.get(name, 0)} to {end[name]}" for name in sorted(end) if end[name] > start.get(name, 0)
    ]
    return f" ({'; '.join(parts[:8])})" if parts else ""


def dead_letter_values(bad: Mapping[str, Any], pipeline: str, batch_id: int) -> tuple[Any, ...]:
    """In the order of `DEAD_LETTER_COLUMNS`. Text columns of databases hold no NUL, so it is spelt out."""
    text = [str(bad[name]).replace("\x00", "\\u0000") for name in ("reason", "row")]
    return (pipeline, batch_id, bad.get("topic"), bad.get("partition"), bad.get("offset"), *text)
