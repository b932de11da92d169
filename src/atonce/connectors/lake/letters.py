"""How tables of files keep dead letters: one row each, known by pipeline, output and place in the input."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from atonce.delivery.letters import Kept, Letter, Original, headers_of, headers_text

KEY = ("pipeline", "output", "input_topic", "input_partition", "input_offset", "input_index")
_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("pipeline", pa.string()),
        ("output", pa.string()),
        ("input_topic", pa.string()),
        ("input_partition", pa.int64()),
        ("input_offset", pa.int64()),
        ("input_index", pa.int64()),
        ("batch_id", pa.int64()),
        ("reason", pa.string()),
        ("row_json", pa.string()),
        ("input_key", pa.binary()),
        ("input_value", pa.binary()),
        ("input_headers", pa.string()),
        ("input_timestamp", _TIME),
        ("put_aside_at", _TIME),
        ("attempts", pa.int64()),
        ("replayed_at", _TIME),
        ("owner", pa.string()),
        ("number", pa.int64()),
        ("instance", pa.string()),
        ("sequence", pa.int64()),
        ("confirmed", pa.bool_()),
    ]
)


def row_of(kept: Kept, pipeline: str, output: str) -> dict[str, Any]:
    letter, original = kept.letter, kept.letter.original
    ms = original.timestamp_ms if original else None
    return {
        **dict(zip(KEY, (pipeline, output, *letter.place, letter.index), strict=True)),
        "batch_id": kept.batch_id,
        "reason": letter.reason,
        "row_json": letter.row,
        "input_key": original.key if original else None,
        "input_value": original.value if original else None,
        "input_headers": headers_text(original) if original else None,
        "input_timestamp": None if ms is None else datetime.fromtimestamp(ms / 1000, UTC),
        "put_aside_at": kept.put_aside_at,
        "attempts": kept.attempts,
        "replayed_at": kept.replayed_at,
    }


def kept_of(row: dict[str, Any]) -> Kept:
    headers, at = row["input_headers"], row["input_timestamp"]
    original = None
    if headers is not None:
        original = Original(
            key=row["input_key"],
            value=row["input_value"],
            headers=headers_of(headers),
            timestamp_ms=None if at is None else round(at.timestamp() * 1000),
        )
    return Kept(
        letter=Letter(
            place=(row["input_topic"], row["input_partition"], row["input_offset"]),
            index=row["input_index"],
            reason=row["reason"],
            row=row["row_json"],
            original=original,
        ),
        batch_id=row["batch_id"],
        put_aside_at=row["put_aside_at"],
        attempts=row["attempts"],
        replayed_at=row["replayed_at"],
    )
