"""The sending task: takes encoded record batches and writes them, with the right to do so, into their partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from atonce.client.cluster import shared
from atonce.client.produce import Sender, idempotent_producer
from atonce.connectors.kafka.write.blobs import BLOB_ARROW, Encoder
from atonce.connectors.kafka.write.lease import EVERYTHING, Lease, LeaseAddress, Target
from atonce.connectors.kafka.write.spool import SpoolReader
from atonce.connectors.kafka.write.tally import SlotTally
from atonce.errors import AttemptAborted, InvariantError
from atonce.spark.attempt import Attempt, taken

Mode = Literal["transaction", "idempotent", "plain", "forget"]
"""transaction: the driver's producer id and epoch, leased. idempotent: a producer id of the task's own.
plain: retried, not idempotent. forget: no answer is awaited, nothing is sent twice, leased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTask:
    """Runs in Spark's tasks over blobs (or, with `encoder`, over rows that it encodes itself)."""

    servers: str
    config: Mapping[str, str] = field(repr=False)
    mode: Mode
    acks: int = -1
    transactional_id: str | None = None
    producer_id: int = -1
    epoch: int = -1
    protocol: int = 2
    """Of the transaction: who adds partitions to it, the broker or the lease."""
    lease: LeaseAddress | None = field(default=None, repr=False)
    encoder: Encoder | None = None
    """Set when the batch is small enough for one task: then there is no shuffle between encoding and sending."""
    spool: str | None = None
    """Where blobs are that do not travel with the rows."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        if self.mode == "transaction" and (self.producer_id < 0 or self.epoch < 0):
            # A broker takes such records as plain data, outside of any transaction.
            raise InvariantError(f"producer id {self.producer_id}, epoch {self.epoch}: not inside a transaction")
        blobs = self.encoder(batches) if self.encoder else batches
        lease = Lease(self.lease) if self.lease else None
        sender: Sender | None = None
        tallies: dict[int, SlotTally] = {}
        notes: list[str] = []
        allowed: dict[Target, bool] = {}
        records = size = 0
        spool = SpoolReader(self.spool)
        try:
            for batch in blobs:
                for blob in _rows(batch, spool):
                    if blob.note is not None:
                        notes.append(blob.note)
                        continue
                    tally = tallies.setdefault(blob.slot, SlotTally(blob.slot))
                    if blob.data is None:
                        tally.footer(blob.run, blob.index)
                        continue
                    tally.blob(blob.run, blob.index)
                    target = self._target(blob)
                    if lease is not None and target not in allowed:
                        allowed[target] = self._may_write(lease, target)
                    if not allowed.get(target, True):
                        continue
                    if sender is None:
                        sender = self._sender(lease)
                    sender.send(blob.topic, blob.partition, blob.data)
                    records += blob.records
                    size += len(blob.data)
            if sender is not None:
                sender.flush()
            if lease is not None and self.mode == "transaction" and sender is not None and lease.broken():
                raise AttemptAborted("the driver took the right to write back: the batch runs again")
            if lease is not None:
                lease.done()
        finally:
            if sender is not None:
                sender.close()
            if lease is not None:
                lease.close()
        yield _report(tallies, records, size, notes)

    def on(self, attempt: Attempt) -> SendTask:
        """The same task for one attempt at one batch."""
        lease = replace(self.lease, attempt=attempt.id) if self.lease is not None else None
        return replace(self, lease=lease, producer_id=attempt.producer_id, epoch=attempt.epoch)

    def _target(self, blob: _Blob) -> Target:
        """What the driver is asked for. A whole batch whose rows would stay where they went is one thing to write."""
        return EVERYTHING if self.mode == "forget" and self.encoder is not None else (blob.topic, blob.partition)

    def _may_write(self, lease: Lease, target: Target) -> bool:
        if lease.ask(*target):
            return True
        if self.mode == "forget":
            return False  # another attempt has begun to send these: sending them again could double them
        raise AttemptAborted(
            f"{target[0]}/{target[1]} was leased to another attempt of this task: the batch runs again"
        )

    def _sender(self, lease: Lease | None) -> Sender:
        cluster = shared(self.servers, dict(self.config))
        producer_id, epoch = self.producer_id, self.epoch
        if self.mode == "idempotent":
            producer_id, epoch = idempotent_producer(cluster)
        return Sender(
            cluster,
            transactional_id=self.transactional_id if self.mode == "transaction" else None,
            producer_id=producer_id,
            epoch=epoch,
            acks=0 if self.mode == "forget" else self.acks,
            retries=self.mode != "forget",
            should_stop=lease.broken if lease is not None else None,
            protocol=self.protocol,
        )


@dataclass(frozen=True, slots=True)
class OfAttempt:
    """A sending task that learns from its job which attempt it works for, and so is the same for all of them."""

    task: SendTask

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        return self.task.on(taken())(batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedSend:
    """Runs inside the source's tasks (`map_arrow`): a small batch is sent right there, any other becomes blobs."""

    encoder: Encoder
    task: SendTask

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        attempt = taken()
        if attempt.whole:
            return replace(self.task.on(attempt), encoder=replace(self.encoder, spool=None, whole=True))(batches)
        return self.encoder.on(attempt)(batches)


@dataclass(frozen=True, slots=True)
class _Blob:
    slot: int
    topic: str
    partition: int
    records: int
    run: int
    index: int
    data: Any
    note: str | None


def _rows(batch: Any, spool: SpoolReader) -> Iterator[_Blob]:
    """Blob by blob (a few per second), with `data` a view into the Arrow buffer or the spool, not a copy."""
    names = ("slot", "topic", "partition", "records", "run", "index", "at", "size", "note")
    small = [batch.column(name).to_pylist() for name in names]
    data = batch.column("data")
    for number, values in enumerate(zip(*small, strict=True)):
        slot, topic, partition, records, run, index, at, size, note = values
        cell = data[number]
        content = spool.view(run, at, size) if size is not None else cell.as_buffer() if cell.is_valid else None
        yield _Blob(slot, topic, partition, records, run, index, content, note)


def _report(tallies: dict[int, SlotTally], records: int, size: int, notes: list[str]) -> Any:
    rows: list[dict[str, Any]] = [
        {
            "slot": tally.slot,
            "records": 0,
            "size": 0,
            "tally": json.dumps([tally.seen, tally.expected]),
            "note": None,
        }
        for tally in tallies.values()
    ]
    rows += [{"slot": None, "records": 0, "size": 0, "tally": None, "note": note} for note in notes]
    rows.append({"slot": None, "records": records, "size": size, "tally": None, "note": None})
    return pa.RecordBatch.from_pylist(rows, schema=BLOB_ARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What all sending tasks of an attempt returned, read in the driver."""

    records: int
    bytes: int
    tallies: tuple[SlotTally, ...]
    notes: tuple[dict[str, Any], ...]
    dead: tuple[dict[str, Any], ...] = ()
    """Rows that could not be delivered, and are to be put aside."""

    def complete_runs(self) -> set[int]:
        """Executions of the encoder that have ended, as their footers say, and whose every blob was sent."""
        return set() if self.notes else {run for tally in self.tallies for run in tally.expected}


def read_reports(rows: Iterable[Any]) -> Report:
    rows = list(rows)
    tallies = []
    for row in rows:
        if row["tally"] is not None:
            seen, expected = json.loads(row["tally"])
            tallies.append(
                SlotTally(row["slot"], {int(r): n for r, n in seen.items()}, {int(r): n for r, n in expected.items()})
            )
    notes = [json.loads(row["note"]) for row in rows if row["note"] is not None]
    return Report(
        records=sum(row["records"] for row in rows),
        bytes=sum(row["size"] for row in rows),
        tallies=tuple(tallies),
        notes=tuple(note for note in notes if "dead" not in note),
        dead=tuple(each for note in notes for each in note.get("dead", ())),
    )
