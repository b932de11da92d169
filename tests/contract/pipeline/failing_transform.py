"""A pipeline whose function fails after its first rows are sent, where Spark retries tasks. A script for its test."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

import atonce
from atonce.errors import AtOnceError


def fails_midway(batch: Any) -> Any:
    yield pa.record_batch({"id": batch.column("offset"), "value": batch.column("value").cast(pa.string())})
    raise LookupError("no such currency: XYZ")


def main(name: str, servers: str, database: str, checkpoint: str) -> None:
    pipeline = (
        atonce.Pipeline(name, checkpoint=checkpoint, master="local[2,4]")
        .read(atonce.Kafka(name, servers=servers))
        .map_arrow(fails_midway, "id bigint, value string")
        .write(atonce.Postgres(database, table=name, create=True))
    )
    try:
        pipeline.run(available_now=True)
    except AtOnceError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
