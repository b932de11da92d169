"""Lines as records: a line is a value, or KEY then VALUE, or a JSON object with what `atonce consume --json` prints."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from atonce.errors import UsageError

CHUNK_BYTES = 4 << 20
_JSON_KEYS = ("key", "value", "headers", "partition", "timestamp")
_FROM_CONSUME = ("topic", "offset")
"""Told by `consume`, and not to be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """How lines are read."""

    separator: bytes | None = None
    """What stands before its first occurrence is the key."""
    null: bytes | None = None
    """A value that reads so is none: a tombstone."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Of every record, beside its own."""
    partition: int | None = None
    timestamp_ms: int | None = None
    json: bool = False

    def batches(self, stream: IO[bytes]) -> Iterator[Any]:
        """Arrow record batches of key, value, headers, partition and timestamp."""
        done = 0
        for lines in _lines(stream):
            stripped = [line.rstrip(b"\r") for line in lines]
            yield self._from_json(stripped, done) if self.json else self._from_text(stripped)
            done += len(lines)

    def _from_text(self, lines: Sequence[bytes]) -> Any:
        if self.separator is None:
            return self._batch([None] * len(lines), list(lines))
        parted = [line.partition(self.separator) for line in lines]
        # A line without the separator has no key; all of it is the value.
        keys = [before if found else None for before, found, _ in parted]
        return self._batch(keys, [after if found else before for before, found, after in parted])

    def _from_json(self, lines: Sequence[bytes], done: int) -> Any:
        rows = [_record(line, done + number + 1) for number, line in enumerate(lines)]
        return self._batch(
            [row["key"] for row in rows],
            [row["value"] for row in rows],
            [row["headers"] for row in rows],
            [row["partition"] for row in rows],
            [row["timestamp"] for row in rows],
        )

    def _batch(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[Any] | None = None,
        partitions: list[int | None] | None = None,
        times: list[int | None] | None = None,
    ) -> Any:
        import pyarrow as pa

        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        common = [{"key": key, "value": value} for key, value in self.headers]
        count = len(values)
        columns = {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([None if v is not None and v == self.null else v for v in values], pa.binary()),
            "partition": pa.array(
                [self.partition if p is None else p for p in partitions or [None] * count], pa.int32()
            ),
            "timestamp": pa.array(
                [self.timestamp_ms if t is None else t for t in times or [None] * count], pa.timestamp("ms")
            ),
        }
        if headers is not None or common:
            columns["headers"] = pa.array(
                [[*(own or []), *common] for own in headers or [None] * count], pa.list_(pair)
            )
        return pa.record_batch(columns)


def header(text: str) -> tuple[str, bytes]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise UsageError(f"--header {text!r} is not KEY=VALUE")
    return key, value.encode()


def moment_ms(text: str) -> int:
    """Milliseconds since 1970, from that number or from ISO 8601 with its zone."""
    try:
        if text.strip().isdigit():
            return int(text)
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise UsageError(
            f"timestamp {text!r} is not a time: expected such as 2026-01-31T12:00:00Z, with its zone, or milliseconds"
        )
    return int(at.timestamp() * 1000)


def _record(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            raise TypeError
        unknown = sorted(set(found) - {*_JSON_KEYS, *_FROM_CONSUME})
        if unknown:
            raise UsageError(f"line {number}: {unknown[0]!r} is not one of: {', '.join(_JSON_KEYS)}")
        at = found.get("timestamp")
        return {
            "key": _bytes(found.get("key")),
            "value": _bytes(found.get("value")),
            "headers": [{"key": str(h["key"]), "value": _bytes(h.get("value"))} for h in found.get("headers") or []],
            "partition": None if found.get("partition") is None else int(found["partition"]),
            "timestamp": None if at is None else moment_ms(str(at)),
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(
            f'line {number} is not a record such as {{"key": "1", "value": "text", "headers": [{{"key": "k", "value": '
            f'"v"}}], "partition": 0, "timestamp": "2026-01-31T12:00:00Z"}}: {line[:80].decode(errors="replace")}'
        ) from None


def _bytes(value: Any) -> bytes | None:
    """Text, {"base64": "…"} for other bytes, or any other JSON as its text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False).encode()


def _lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Whole lines as they arrive: a slow pipe or a person typing is not kept waiting for a full chunk."""
    tail = b""
    while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        *lines, tail = (tail + chunk).split(b"\n")
        if lines:
            yield lines
    if tail:
        yield [tail]
