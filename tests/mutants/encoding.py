"""Encoding wrongly: nulls, headers, timestamps, partitions, sizes."""

from __future__ import annotations

from typing import Any

from .catalogue import CLEAN, Family, On, mutant

BLOBS = "atonce.connectors.kafka.write.blobs"
LARGE_ROWS = 2_000
LARGE_BYTES = 1 << 15


def _changed(blobs: Any, name: str, change: Any) -> None:
    """`as_records` with one column changed."""
    real = blobs.as_records

    def as_records(rows: Any) -> Any:
        found = real(rows)
        if name not in found.schema.names:
            return found
        return found.set_column(found.schema.names.index(name), name, change(found.column(name)))

    blobs.as_records = as_records


@mutant(Family.ENCODING, "A null value (a tombstone) becomes an empty one.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def null_value_becomes_empty(blobs: Any) -> None:
    _changed(blobs, "value", lambda column: blobs.pc.fill_null(column, b""))


@mutant(Family.ENCODING, "A null key becomes an empty one.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def null_key_becomes_empty(blobs: Any) -> None:
    _changed(blobs, "key", lambda column: blobs.pc.fill_null(column, b""))


@mutant(Family.ENCODING, "An empty value becomes null.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def empty_value_becomes_null(blobs: Any) -> None:
    pa, pc = blobs.pa, blobs.pc
    _changed(
        blobs,
        "value",
        lambda column: pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, column.type), column),
    )


@mutant(Family.ENCODING, "Headers are dropped.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def headers_are_dropped(blobs: Any) -> None:
    real = blobs.as_records

    def as_records(rows: Any) -> Any:
        found = real(rows)
        return found.select([name for name in found.schema.names if name != "headers"])

    blobs.as_records = as_records


@mutant(Family.ENCODING, "Of headers with one name only the last is kept.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def headers_become_a_map(blobs: Any) -> None:
    def once(column: Any) -> Any:
        rows = column.to_pylist()
        kept = [None if row is None else list({each["key"]: each for each in row}.values()) for row in rows]
        return blobs.pa.array(kept, column.type)

    _changed(blobs, "headers", once)


@mutant(Family.ENCODING, "A header's null value becomes an empty one.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def null_header_becomes_empty(blobs: Any) -> None:
    def filled(column: Any) -> Any:
        rows = column.to_pylist()
        kept = [None if row is None else [{**each, "value": each["value"] or b""} for each in row] for row in rows]
        return blobs.pa.array(kept, column.type)

    _changed(blobs, "headers", filled)


@mutant(Family.ENCODING, "A record gets the time of sending instead of its own.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def timestamps_are_those_of_sending(blobs: Any) -> None:
    _changed(blobs, "timestamp", lambda column: blobs.pa.nulls(len(column), column.type))


@mutant(Family.ENCODING, "A record's time loses its milliseconds.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def timestamps_in_seconds(blobs: Any) -> None:
    pc = blobs.pc
    _changed(blobs, "timestamp", lambda column: pc.multiply(pc.divide(column, 1000), 1000))


@mutant(
    Family.ENCODING,
    "Keys are spread by librdkafka's hash, whatever the pipeline says: a key changes its partition.",
    fault=CLEAN,
    at="atonce.records.partitioner",
    on=On.COPY,
    partitions=6,
)
def another_partitioner(partitioner: Any) -> None:
    real = partitioner.assign

    def assign(keys: Any, n_partitions: int, **words: Any) -> Any:
        return real(keys, n_partitions, **{**words, "partitioner": "crc32"})

    partitioner.assign = assign


@mutant(
    Family.ENCODING,
    "Rows are spread round robin, so that the rows of one key lie in several partitions.",
    fault=CLEAN,
    at="atonce.records.partitioner",
    on=On.COPY,
    partitions=6,
)
def keys_are_spread(partitioner: Any) -> None:
    np = partitioner.np

    def assign(keys: Any, n_partitions: int, *, position: int = 0, **_: Any) -> Any:
        return ((np.arange(len(keys)) + position) % n_partitions).astype(np.int32)

    partitioner.assign = assign


@mutant(Family.ENCODING, "The last row of a large batch is not encoded.", fault=CLEAN, at=BLOBS)
def large_batch_loses_its_last_row(blobs: Any) -> None:
    real = blobs.Encoder._blobs

    def encoded(self: Any, rows: Any, *words: Any) -> Any:
        return real(self, rows.slice(0, rows.num_rows - 1) if rows.num_rows > LARGE_ROWS else rows, *words)

    blobs.Encoder._blobs = encoded


@mutant(Family.ENCODING, "Of a large value only the first 32 KiB are sent.", fault=CLEAN, at=BLOBS, on=On.WHOLE)
def large_values_are_cut(blobs: Any) -> None:
    _changed(blobs, "value", lambda column: blobs.pc.binary_slice(column, 0, LARGE_BYTES))
