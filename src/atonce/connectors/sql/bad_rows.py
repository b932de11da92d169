"""Rows that cannot be delivered: how they are named to people, and how they travel to the driver."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from atonce.delivery.contract import Batch
from atonce.delivery.letters import ORIGIN
from atonce.errors import UndeliverableRow

POSITION = ("topic", "partition", "offset")
"""Columns of Kafka's that name a row's place in the input, when the DataFrame carries them."""
NOT_STORED = (*POSITION, *ORIGIN)
"""Columns that a table need not have: they name a row, and no more."""

_SHOWN = 300


def as_json(row: Mapping[str, Any]) -> str:
    """The row for people and for repair; bytes that are not text stand as base64."""
    return json.dumps({name: _plain(value) for name, value in row.items() if name not in ORIGIN}, default=str)


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
    known = ORIGIN if row.get(ORIGIN[2]) is not None else (*POSITION, "")
    topic, partition, offset, index = (_plain(row.get(name)) for name in known)
    place = {"topic": topic, "partition": partition, "offset": offset, "index": index or 0}
    return {**place, "reason": reason, "row": as_json(row)}


def undeliverable(bad: Mapping[str, Any], table: str, batch: Batch) -> UndeliverableRow:
    """What stops the pipeline: where the row stands in the input, why it does not fit, and what can be done."""
    located = bad.get("offset") is not None
    if located:
        topic = f"topic {bad['topic']}, " if bad.get("topic") else ""
        where = f"{topic}partition {bad.get('partition')}, offset {bad['offset']}"
    else:
        where = f"batch {batch.plan.batch_id}{_span(batch)}"
    if bad.get("row") is None:
        what = f"a record cannot be read: {bad['reason']}. It is at {where}"
    else:
        shown = str(bad["row"])
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        what = f"a row cannot be delivered to {table}: {bad['reason']}. It comes from {where}. Row: {shown}"
    error = UndeliverableRow(
        f"{what}. Nothing of the batch was delivered. Next: repair it in the transform, or set "
        'on_error="dead-letter" to put such rows aside.'
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
