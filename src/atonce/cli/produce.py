"""`atonce produce`: lines of a file or of standard input become records, each once (idempotent producer)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from atonce.cli.parts.lines import Lines, moment_ms
from atonce.cli.parts.lines import header as header_of
from atonce.cli.parts.servers import ConfigOption, ServersOption, connected
from atonce.errors import AtOnceError, UsageError

if TYPE_CHECKING:
    from atonce.client.cluster import Cluster

HELP = """Write lines to a topic, one record per line, with an idempotent producer.

Examples:

  seq 100 | atonce produce orders

  atonce produce orders --file orders.txt --key-separator :

  atonce produce orders --file orders.jsonl --compression zstd

  echo 17:NULL | atonce produce orders --key-separator : --null NULL

  atonce consume orders --json | atonce produce orders-copy --json
"""
APPEARS_S = 15.0


def register(app: typer.Typer) -> None:
    app.command("produce", help=HELP)(produce)


def produce(
    topic: str,
    servers: ServersOption = None,
    file: Annotated[Path | None, typer.Option(help="Read lines from here instead of standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="What stands before its first occurrence in a line is the record's key.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, a header of every record. Can be repeated.")
    ] = None,
    null: Annotated[
        str | None, typer.Option(help="A value that reads so is null: a tombstone, which deletes its key.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Of every record, instead of by its key.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Of every record: 2026-01-31T12:00:00Z or milliseconds; default: now.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Lines are objects as `consume --json` prints them: key, value (null: a tombstone), headers, "
            "partition, timestamp.",
        ),
    ] = False,
    partitioner: Annotated[str, typer.Option(help="murmur2 (as Java) or crc32 (as librdkafka).")] = "murmur2",
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    create: Annotated[bool, typer.Option(help="Make a missing topic, and say so.")] = True,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a topic that is made.")] = 4,
    config: ConfigOption = None,
) -> None:
    from atonce.records.encode import compression_named

    compression_named(compression)
    if key_separator == "":
        raise UsageError("--key-separator must not be empty")
    if json and (key_separator or null is not None):
        raise UsageError("--json lines name their key and value: --key-separator and --null do not go with it")
    lines = Lines(
        separator=key_separator.encode() if key_separator else None,
        null=None if null is None else null.encode(),
        headers=tuple(header_of(each) for each in header or ()),
        partition=partition,
        timestamp_ms=None if timestamp is None else moment_ms(timestamp),
        json=json,
    )
    try:
        stream: IO[bytes] = file.open("rb") if file else sys.stdin.buffer
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    with connected(servers, config) as cluster:
        if create and _make(cluster, topic, partitions):
            print(f"created {topic} with {partitions} partition(s)", file=sys.stderr)
        with stream:
            total = send_lines(cluster, topic, stream, lines, partitioner, compression)
    print(f"{total} record(s) written to {topic}")


def _make(cluster: Cluster, topic: str, partitions: int) -> bool:
    from atonce.client.operate.admin import create_topic

    if cluster.topic(topic, refresh=True) is not None:
        return False
    made = create_topic(cluster, topic, partitions, exists_ok=True)
    deadline = time.monotonic() + APPEARS_S
    while cluster.topic(topic, refresh=True) is None:
        if time.monotonic() > deadline:
            raise AtOnceError(f"topic {topic} was created and has not appeared within {APPEARS_S:g} s")
        time.sleep(0.05)
    return made


def send_lines(
    cluster: Cluster, topic: str, stream: IO[bytes], lines: Lines, partitioner: str, compression: str
) -> int:
    """Chunks of lines, each encoded as columns and sent; returns when all are acknowledged."""
    from atonce.client.errors import Code, error_for
    from atonce.client.produce import Sender, idempotent_producer
    from atonce.records.encode import encode
    from atonce.records.partitioner import assign

    found = cluster.topic(topic, refresh=True)
    if found is None:
        raise error_for(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")
    count = len(found.partitions)
    producer_id, epoch = idempotent_producer(cluster)
    sender = Sender(cluster, producer_id=producer_id, epoch=epoch)
    total = 0
    try:
        for batch in lines.batches(stream):
            chosen = batch.column("partition")
            targets = assign(batch.column("key"), count, partitioner=partitioner, position=total, explicit=chosen)
            for partition, _records, blob in encode(batch, targets, count, compression=compression):
                sender.send(topic, partition, blob)
            total += batch.num_rows
        sender.flush()
    finally:
        sender.close()
    return total
