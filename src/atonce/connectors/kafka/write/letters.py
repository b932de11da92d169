"""Dead letters as records of a topic: the original value as it was, and everything else in headers.

The key names the letter (pipeline, output, place, index), so that a compacted topic holds each once. The record's own
headers follow ours, which all begin with `atonce.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from atonce.delivery.letters import WHOLE, Kept, Letter, Original

PREFIX = "atonce."
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ROOM = 4_096
"""Bytes for the key, our own headers and what a record needs besides."""


def records(kept: Sequence[Kept], pipeline: str, output: str, limit: int) -> Any:
    """Columns key, value and headers, for the codec. What is too large for the topic is cut, and that is said."""
    made = [_record(each, pipeline, output, max(0, limit - _ROOM)) for each in kept]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _, _ in made], pa.binary()),
            pa.array([value for _, value, _ in made], pa.binary()),
            pa.array([headers for _, _, headers in made], HEADERS),
        ],
        names=["key", "value", "headers"],
    )


def _record(kept_letter: Kept, pipeline: str, output: str, room: int) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    letter = kept_letter.letter
    topic, partition, offset = letter.place
    told: dict[str, bytes | None] = {
        "pipeline": pipeline.encode(),
        "output": output.encode(),
        "topic": topic.encode(),
        "partition": str(partition).encode(),
        "offset": str(offset).encode(),
        "index": str(letter.index).encode(),
        "reason": letter.reason.encode("utf-8", "replace")[:1_000],
    }
    if kept_letter.attempts > 1:
        told["attempts"] = str(kept_letter.attempts).encode()
    if kept_letter.replayed_at is not None:
        told["replayed"] = kept_letter.replayed_at.isoformat().encode()
    original = letter.original
    value = original.value if original is not None else None
    if value is None:  # a null would be a tombstone: compaction would take the letter away
        told["value"] = b"null" if original is not None else b"unknown"
    kept, room = _cut(value or b"", room)
    if len(kept) < len(value or b""):
        told["cut"] = str(len(value or b"")).encode()
    own = []
    if original is not None:
        told["timestamp"] = b"" if original.timestamp_ms is None else str(original.timestamp_ms).encode()
        for name, content in (("key", original.key), *((f"header {n}", c) for n, c in original.headers)):
            size = len(name) + len(content or b"")
            if size > room:
                told["left-out"] = name.encode()[:200]
            elif name == "key":
                told["key"], room = content, room - size
            else:
                own.append({"key": name.removeprefix("header "), "value": content})
                room -= size
    if letter.row is not None and len(row := letter.row.encode("utf-8", "replace")) <= room:
        told["row"] = row
    told["own"] = str(len(own)).encode()
    headers = [{"key": PREFIX + name, "value": content} for name, content in told.items()]
    return letter.name(pipeline, output).encode(), kept, [*headers, *own]


def _cut(value: bytes, room: int) -> tuple[bytes, int]:
    kept = value[:room]
    return kept, room - len(kept)


def read(headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> tuple[Letter, Mapping[str, str]] | None:
    """A record of such a topic as the letter, and what else it says; None for a record of another kind."""
    first: dict[str, bytes | None] = {}
    for name, content in headers:
        if name.startswith(PREFIX):
            first.setdefault(name, content)
    # A letter of a letter has such headers of its own: the last ones, and it is said how many.
    count = int(first.get(PREFIX + "own") or -1)
    end = len(headers) - count if count >= 0 else len(headers)
    ours = {name.removeprefix(PREFIX): content for name, content in headers[:end] if name.startswith(PREFIX)}
    own = headers[end:] if count >= 0 else [each for each in headers if not each[0].startswith(PREFIX)]
    if "offset" not in ours or "reason" not in ours:
        return None
    text = {name: (content or b"").decode("utf-8", "replace") for name, content in ours.items()}
    whole = text.get("value") != "unknown"
    original = Original(
        key=ours.get("key"),
        value=None if "value" in ours else value,
        headers=tuple(own),
        timestamp_ms=int(text["timestamp"]) if text.get("timestamp") else None,
    )
    letter = Letter(
        place=(text.get("topic", ""), int(text.get("partition") or -1), int(text["offset"])),
        index=int(text.get("index") or WHOLE),
        reason=text["reason"],
        row=text.get("row"),
        original=original if whole and "cut" not in ours and "left-out" not in ours else None,
    )
    return letter, text
