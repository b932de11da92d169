"""Encode before the shuffle: rows become record batches per target partition, and those blobs are what Spark moves.

One blob row is one record batch. Every execution of the encoder has an id of its own (`run`), numbers its blobs per
slot (`index`), and ends with a footer per slot that says how many there were; so the driver can tell whether every
sender saw the same executions, and all of them (`kafka_tally`). A *slot* is one sending task; a partition always has
the same slot.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from atonce.connectors.kafka.write.spool import SpoolWriter
from atonce.delivery.letters import ORIGIN
from atonce.errors import AtOnceError, RetriableError
from atonce.records.encode import encode, milliseconds
from atonce.records.partitioner import assign
from atonce.spark.arrow_transform import ENOUGH_BYTES, together, transformed
from atonce.spark.attempt import Attempt
from atonce.spark.siblings import Siblings
from atonce.spark.task_errors import named

BLOB_SCHEMA = (
    "slot int, topic string, partition int, records bigint, run bigint, index int, data binary, at bigint, "
    "size bigint, tally string, note string"
)
"""A blob is in `data`, or, when `size` is set, `size` bytes at `at` in the spool of its run (`spool`).

A sender's report has the same columns (`kafka_send`)."""
BLOB_ARROW = pa.schema(
    [
        ("slot", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("run", pa.int64()),
        ("index", pa.int32()),
        ("data", pa.binary()),
        ("at", pa.int64()),
        ("size", pa.int64()),
        ("tally", pa.string()),
        ("note", pa.string()),
    ]
)
_BLOB_BYTES = 128 << 10
"""A record batch of this size is worth a request of its own."""
_MOST_BYTES = 16 << 20
"""Most that is gathered for that, however many partitions there are."""
_NO_TIMESTAMP = -1
_LONG = 1 << 62
_SHOWN = 1_000
"""Bytes of a row that its dead letter shows."""
_RECORD_OVERHEAD = 100
"""Bytes a record and its batch take besides key, value and headers, generously."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How far from now a record's timestamp may be, as the topics' brokers want it."""

    before_ms: int = (1 << 63) - 1
    after_ms: int = (1 << 63) - 1

    def and_also(self, others: TimeLimits) -> TimeLimits:
        """The narrower of each."""
        return TimeLimits(before_ms=min(self.before_ms, others.before_ms), after_ms=min(self.after_ms, others.after_ms))

    def refused(self, times: Any, now_ms: int) -> Any:
        """Which of these times (-1: none) no broker would take."""
        return (
            (times < _NO_TIMESTAMP)
            | (times > now_ms + min(self.after_ms, _LONG))
            | ((times >= 0) & (times < now_ms - min(self.before_ms, _LONG)))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The output topics and how their partitions are spread over the sending tasks. Made in the driver."""

    partitions: Mapping[str, int]
    """Topic → number of partitions."""
    slots: int
    times: TimeLimits = field(default_factory=TimeLimits)

    def slot(self, topic: str, partition: Any) -> Any:
        """The one task that writes this partition (also on an array of partitions)."""
        base = 0
        for name in sorted(self.partitions):
            if name == topic:
                break
            base += self.partitions[name]
        return (base + partition) % self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Runs in Spark's tasks over the output columns `key, value, headers, topic, partition, timestamp`."""

    targets: Targets
    topic: str | None
    """Where all rows go; None: each row's `topic` column says."""
    partitioner: str = "murmur2"
    compression: str = "none"
    max_record_bytes: int = 1_000_000
    dead_letter: str | None = None
    transform: Any = field(default=None)
    """A function on Arrow record batches that runs first (`map_arrow`)."""
    spool: str | None = None
    """Directory through which blobs go to their senders; None: they travel with the rows."""
    whole: bool = False
    """Encode much at once: a small batch should not become a record batch per input partition and target."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        run = _Run.begin(self.targets.slots, self.spool)
        position = 0
        siblings: Siblings | None = None
        found = (rows for batch in batches for rows in transformed(self.transform, batch))
        try:
            for rows in together(found, self._enough()):
                siblings = siblings or Siblings(rows.schema.names)
                rows = siblings.numbered(rows)
                blobs, problem, dead = self._blobs(rows, run, position)
                if problem:
                    yield _row(slot=0, note=json.dumps(problem))
                    return
                if dead:
                    yield _row(slot=0, note=json.dumps({"dead": dead}))
                position += rows.num_rows
                if blobs is not None:
                    yield blobs
        except RetriableError:
            raise  # this task may be tried again, before anything else of the batch is
        except AtOnceError as error:
            # Told and not raised: a task that fails is tried again, and may only find its partitions leased.
            yield _row(slot=0, note=json.dumps({"failed": named(error)}))
            return
        finally:
            run.spool.close()
        yield _footers(run)

    def _enough(self) -> int:
        """How many bytes to encode at once, so that every target partition gets a record batch worth sending."""
        partitions = sum(self.targets.partitions.values())
        return max(ENOUGH_BYTES if self.whole else 0, min(_BLOB_BYTES * partitions, _MOST_BYTES))

    def on(self, attempt: Attempt) -> Encoder:
        """The same encoder for one attempt at one batch."""
        return self if attempt.spooled else replace(self, spool=None)

    def _blobs(self, rows: Any, run: _Run, position: int) -> tuple[Any, dict[str, Any] | None, list[dict[str, Any]]]:
        """What is sent, what stops the batch, and what is put aside."""
        if rows.num_rows == 0:
            return None, None, []
        given, rows = rows, as_records(rows)
        dead: list[dict[str, Any]] = []
        bad = self._undeliverable(rows)
        parts = []
        if bad is not None:
            reasons, mask = bad
            first = int(np.argmax(mask))
            if self.dead_letter is None:
                return None, {"undeliverable": reasons[first], "row": position + first}, []
            dead = [_dead(given, rows, int(number), reasons[int(number)]) for number in np.flatnonzero(mask)]
            rows = rows.filter(pa.array(~mask))
        if self.topic is not None:
            parts.append(self._encode(self.topic, rows, run, position))
        else:
            for name in pc.unique(rows.column("topic")).to_pylist():
                if name not in self.targets.partitions:
                    return None, {"unknown_topic": name}, []
                of_topic = rows.filter(pc.equal(rows.column("topic"), name))
                parts.append(self._encode(name, of_topic, run, position))
        parts = [part for part in parts if part.num_rows]
        return (pa.concat_batches(parts) if len(parts) > 1 else parts[0] if parts else None), None, dead

    def _encode(self, topic: str, rows: Any, run: _Run, position: int) -> Any:
        count = self.targets.partitions[topic]
        names = rows.schema.names
        explicit = rows.column("partition") if "partition" in names else None
        chosen = assign(rows.column("key"), count, partitioner=self.partitioner, position=position, explicit=explicit)
        columns = rows.select([name for name in ("key", "value", "headers", "timestamp") if name in names])
        blobs = encode(columns, chosen, count, compression=self.compression, max_batch_bytes=self.max_record_bytes)
        slots = np.asarray(self.targets.slot(topic, np.asarray(blobs.partition, dtype=np.int32)), dtype=np.int32)
        total = len(slots)
        places = run.spool.put(blobs.data) if total else None
        return pa.RecordBatch.from_arrays(
            [
                pa.array(slots),
                pa.array([topic] * total, pa.string()),
                pa.array(blobs.partition, pa.int32()),
                pa.array(blobs.count, pa.int64()),
                pa.array(np.full(total, run.id, dtype=np.int64)),
                pa.array(run.numbered(slots)),
                blobs.data if places is None else pa.nulls(total, pa.binary()),
                pa.nulls(total, pa.int64()) if places is None else pa.array(places),
                pa.nulls(total, pa.int64()) if places is None else pc.binary_length(blobs.data).cast(pa.int64()),
                pa.nulls(total, pa.string()),
                pa.nulls(total, pa.string()),
            ],
            schema=BLOB_ARROW,
        )

    def _undeliverable(self, rows: Any) -> tuple[dict[int, str], Any] | None:
        """Rows that no broker would take: a reason for each, and a mask. None when all are well."""
        mask = np.zeros(rows.num_rows, dtype=bool)
        reasons: dict[int, str] = {}
        size = record_bytes(rows)
        _note(
            mask,
            reasons,
            size > self.max_record_bytes,
            lambda i: f"it takes {size[i]} bytes, and the topic allows {self.max_record_bytes}",
        )
        if self.topic is None:
            _note(mask, reasons, _numpy(pc.is_null(rows.column("topic"))), lambda _: "its topic is null")
        if "partition" in rows.schema.names:
            wanted = rows.column("partition")
            known = _numpy(pc.fill_null(wanted, 0)).astype(np.int64)
            names = rows.column("topic").to_pylist() if self.topic is None else None
            most = (
                np.array([self.targets.partitions.get(name or "", 1 << 30) for name in names])
                if names is not None
                else np.full(rows.num_rows, self.targets.partitions[self.topic or ""])
            )
            _note(
                mask,
                reasons,
                (known < 0) | (known >= most),
                lambda i: f"its partition {known[i]} is not one of 0 to {most[i] - 1}",
            )
        if "timestamp" in rows.schema.names:
            times = _numpy(pc.fill_null(rows.column("timestamp"), _NO_TIMESTAMP)).astype(np.int64)
            now_ms = time.time_ns() // 1_000_000
            _note(mask, reasons, self.targets.times.refused(times, now_ms), lambda i: self._bad_time(times[i], now_ms))
        return (reasons, mask) if mask.any() else None

    def _bad_time(self, time_ms: int, now_ms: int) -> str:
        if time_ms < 0:
            return f"its timestamp is {time_ms} ms, before 1970, which Kafka cannot hold"
        limit, side = (
            (self.targets.times.after_ms, "after") if time_ms > now_ms else (self.targets.times.before_ms, "before")
        )
        away_s = abs(int(time_ms) - now_ms) // 1000
        return (
            f"its timestamp is {away_s} s {side} now, and the topic allows {limit // 1000} s "
            f"(message.timestamp.{side}.max.ms={limit})"
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution of the encoder."""

    id: int
    sent: list[int]
    """Per slot, how many blobs there were so far."""
    spool: SpoolWriter

    @classmethod
    def begin(cls, slots: int, spool: str | None) -> _Run:
        run = secrets.randbits(63)
        return cls(run, [0] * slots, SpoolWriter(spool, run))

    def numbered(self, slots: Any) -> Any:
        """The index of each blob within its slot."""
        index = np.empty(len(slots), dtype=np.int32)
        for at, slot in enumerate(slots.tolist()):  # per blob, not per record
            index[at] = self.sent[slot]
            self.sent[slot] += 1
        return index


def as_records(rows: Any) -> Any:
    """The columns of a Kafka record with the types the codec takes; text becomes bytes, a missing key is null."""
    columns, names = [], []
    for name in ("key", "value"):
        if name in rows.schema.names:
            column = rows.column(name)
            columns.append(column if pa.types.is_binary(column.type) else column.cast(pa.binary()))
        else:
            columns.append(pa.nulls(rows.num_rows, pa.binary()))
        names.append(name)
    for name in ("headers", "topic", "partition"):
        if name in rows.schema.names:
            columns.append(rows.column(name))
            names.append(name)
    if "timestamp" in rows.schema.names:
        times = milliseconds(rows.column("timestamp"))
        # Kafka's own word for "no time" is -1: such a record, read and sent on, has none either.
        columns.append(pc.if_else(pc.equal(times, _NO_TIMESTAMP), None, times))
        names.append("timestamp")
    return pa.RecordBatch.from_arrays(columns, names=names)


def record_bytes(rows: Any) -> Any:
    size = np.full(rows.num_rows, _RECORD_OVERHEAD, dtype=np.int64)
    for name in ("key", "value"):
        size += _numpy(pc.fill_null(pc.binary_length(rows.column(name)), 0)).astype(np.int64)
    if "headers" in rows.schema.names:
        headers = rows.column("headers")
        flat = headers.flatten()
        if len(flat):
            each = pc.add(
                pc.fill_null(pc.binary_length(flat.field(0)), 0), pc.fill_null(pc.binary_length(flat.field(1)), 0)
            )
            np.add.at(size, _numpy(pc.list_parent_indices(headers)), _numpy(each).astype(np.int64) + 10)
    return size


def _dead(given: Any, rows: Any, number: int, reason: str) -> dict[str, Any]:
    """What the driver is told of a row: where it comes from, why it cannot go, and its beginning."""
    place: dict[str, Any] = dict.fromkeys(("topic", "partition", "offset", "index"))
    if set(ORIGIN) <= set(given.schema.names):
        place = {name: given.column(hidden)[number].as_py() for name, hidden in zip(place, ORIGIN, strict=True)}
    row = {name: rows.column(name)[number].as_py() for name in ("key", "value")}
    shown = {name: None if cell is None else cell[:_SHOWN].decode("utf-8", "replace") for name, cell in row.items()}
    return {**place, "reason": reason, "row": json.dumps(shown)}


def _note(mask: Any, reasons: dict[int, str], bad: Any, say: Any) -> None:
    for i in np.flatnonzero(bad):
        reasons.setdefault(int(i), say(int(i)))
    mask |= bad


def _numpy(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _row(slot: int, note: str) -> Any:
    return pa.RecordBatch.from_pylist([{"slot": slot, "note": note}], schema=BLOB_ARROW)


def _footers(run: _Run) -> Any:
    rows = [{"slot": slot, "run": run.id, "index": count} for slot, count in enumerate(run.sent)]
    return pa.RecordBatch.from_pylist(rows, schema=BLOB_ARROW)
