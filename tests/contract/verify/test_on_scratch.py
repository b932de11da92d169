"""Every source goes to scratch and is fed there; every sink goes to scratch and is read back. One body for all.

What they name for real does not exist, so whoever touched it would fail.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import atonce
from atonce.connectors.contract import Feed, FolderSink, InputRecord, Topic, VerifiedSink, VerifiedSource, Written
from atonce.delivery.abilities import as_source
from atonce.delivery.format import from_text, to_text
from atonce.guarantee import SinkTraits
from atonce.plugins import plugins
from atonce.verify.audit.output import of_records, of_rows
from atonce.verify.audit.readers import CommittedReader
from atonce.verify.ground.feeds import TopicFeed
from atonce.verify.ground.servers import opened, servers_for
from atonce.verify.ground.workload import MARK, Workload, generated
from atonce.verify.session import Options, verify_pipeline
from atonce.verify.subject.contract import Names
from atonce.verify.subject.process import SubjectFailed
from atonce.verify.subject.rewritten import feed_of, grounds, read_back, rewritten
from atonce.verify.wire.cluster import Cluster

NOWHERE = "postgresql://nobody@nowhere.invalid/none"
TEXT = "SELECT CAST(value AS STRING) AS value FROM input"

SOURCES: dict[str, Any] = {
    "kafka": atonce.Kafka("orders", servers="nowhere.invalid:9092"),
    "lines of files": atonce.Files("/nowhere", format="text"),
    "json files, archived": atonce.Files(
        "/nowhere", schema="id string, amount int", clean_source="archive", archive_dir="/nowhere-else"
    ),
    "postgres table": atonce.Table(NOWHERE, table="shop.outbox", column="number"),
    "sqlite table": atonce.Table("sqlite:////nowhere/shop.db", table="outbox", columns=["id", "event"]),
}
TRANSFORMS = {
    "json files, archived": "SELECT id || amount AS value FROM input",
    "sqlite table": "SELECT event AS value FROM input",
}


@dataclass(frozen=True)
class Folder:
    """A sink of a user's own: one file a batch."""

    path: str

    def traits(self) -> SinkTraits:
        return SinkTraits(name=self.path, atomic=False, idempotent=True, fenced=False, ledger="a file", why="a test")

    def describe(self) -> str:
        return f"folder {self.path}"

    def check(self) -> None:
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def open(self, identity: Any, spark: Any) -> OpenFolder:
        return OpenFolder(Path(self.path))

    def on_scratch(self, folder: Path) -> Folder:
        return replace(self, path=str(folder))

    def written(self) -> list[dict[str, Any]]:
        files = sorted(Path(self.path).glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class OpenFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self) -> Any:
        ledger = self.folder / "ledger"
        return from_text(ledger.read_text()) if ledger.exists() else None

    def output(self, batch: Any) -> int:
        rows = [json.dumps(row.asDict()) for row in batch.df.collect()]
        (self.folder / f"{batch.plan.batch_id}.jsonl").write_text("".join(f"{row}\n" for row in rows))
        return len(rows)

    def progress(self, progress: Any) -> None:
        (self.folder / "ledger").write_text(to_text(progress))

    def output_and_progress(self, batch: Any, progress: Any) -> int:
        written = self.output(batch)
        self.progress(batch.complete(progress))
        return written

    progress_on_timer = progress

    def settle(self) -> None: ...

    def close(self) -> None: ...


SINKS: dict[str, Any] = {
    "kafka": atonce.Kafka("out", servers="nowhere.invalid:9092", on_error="dead-letter", dead_letter="bad"),
    "postgres": atonce.Postgres(NOWHERE, table="shop.orders", on_error="dead-letter", dead_letter="shop.bad"),
    "sqlite": atonce.SQLite("/nowhere/out.db", table="orders"),
    "duckdb": atonce.DuckDB("/nowhere/out.duckdb", table="orders"),
    "delta": atonce.Delta("/nowhere/orders"),
    "iceberg": atonce.Iceberg("shop.orders", {"type": "rest", "uri": "http://nowhere.invalid"}),
    "a folder of the user's": Folder("/nowhere"),
}


@dataclass
class Scratch:
    """What verify prepares, without faults and without processes of its own."""

    cluster: Cluster
    servers: str
    folder: Path
    stack: ExitStack
    workload: Workload

    def deliver(self, pipeline: Any) -> tuple[Any, list[str]]:
        """The pipeline on scratch after it has run, and the values that are read back."""
        run = f"run-{uuid.uuid4().hex[:8]}"
        names = Names(
            run=run,
            input=f"{run}-in",
            output=f"{run}-out",
            group=run,
            scratch=self.folder,
            servers=self.servers,
        )
        servers = servers_for(pipeline.source, pipeline.sink, self._started)
        servers.fresh(run)
        on = grounds(names, servers, 10)
        moved = rewritten(replace(pipeline, say=lambda _: None), None, names, on)
        feed = self._feed(feed_of(pipeline, on))
        feed.prepare(self.workload.partitions)
        feed.give(self.workload.head)
        feed.give(self.workload.tail)
        written = read_back(pipeline, on)
        moved.run(available_now=True)
        return moved, [out.decode() for out in self._read(written)]

    def _started(self, kind: Any) -> Any:
        return self.stack.enter_context(closing(opened(kind, None, agreed=False)))

    def _feed(self, given: Feed | Topic) -> Feed:
        return TopicFeed(self.cluster, given.name) if isinstance(given, Topic) else given

    def _read(self, written: Written | Topic) -> list[bytes]:
        if not isinstance(written, Topic):
            return [out.value for out in of_rows(written)]
        reader = CommittedReader(self.cluster, written.name)
        while not reader.caught_up():
            reader.poll(wait_ms=50)
        return [out.value for out in of_records(written.name, [seen.record for seen in reader.seen])]


@pytest.fixture
def verifier(embedded: str, scratch: Path, spark: Any) -> Iterator[Scratch]:
    with ExitStack() as stack:
        cluster = stack.enter_context(closing(Cluster(embedded)))
        yield Scratch(cluster, embedded, scratch, stack, generated(seed=1, count=30, partitions=2, tail=10))


def test_every_built_in_system_is_in_these_lists() -> None:
    for use, parts in (("source", SOURCES), ("sink", SINKS)):
        ours = [plugin for plugin in plugins(use).values() if plugin.package == "atonce"]
        assert {plugin.load() for plugin in ours} <= {type(part) for part in parts.values()}


def numbers(values: list[str]) -> list[int]:
    return sorted(int(found.group(1)) for value in values if (found := MARK.search(value.encode())))


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_on_scratch_gives_what_it_was_fed_and_its_static_batch_the_same(
    name: str, verifier: Scratch, spark: Any
) -> None:
    source = SOURCES[name]
    assert isinstance(source, VerifiedSource)
    transform = TRANSFORMS.get(name, TEXT)
    pipeline = atonce.Pipeline("p").read(source).transform(transform).write(SINKS["sqlite"])
    moved, values = verifier.deliver(pipeline)
    records = verifier.workload.all
    assert numbers(values) == [record.number for record in records]

    assert type(moved.source) is type(source)
    schema = as_source(moved.source).load(spark, None, {}).schema
    moved.source.static(spark, schema, records).createOrReplaceTempView("input")
    batch = [row.value for row in spark.sql(transform).collect()]
    assert sorted(batch) == sorted(json.loads(value)["value"] for value in values)


@pytest.mark.parametrize("name", SINKS)
def test_what_a_sink_on_scratch_was_given_is_read_back(name: str, verifier: Scratch) -> None:
    sink = SINKS[name]
    assert isinstance(sink, VerifiedSink | FolderSink)
    pipeline = atonce.Pipeline("p").read(SOURCES["kafka"]).transform(TEXT).write(sink)
    moved, values = verifier.deliver(pipeline)
    assert type(moved.sink) is type(sink)
    assert numbers(values) == [record.number for record in verifier.workload.all]


def test_a_column_of_nulls_alone_keeps_its_type(spark: Any) -> None:
    """`--records` with values alone: no key is there from which Spark could tell what keys are."""
    records = [InputRecord(number, 0, None, b"v", timestamp_ms=1_700_000_000_123) for number in range(3)]
    source = atonce.Kafka("in", headers=True)
    schema = StructType.fromDDL(
        "key binary, value binary, timestamp timestamp, headers array<struct<key: string, value: binary>>"
    )
    static = source.static(spark, schema, records)
    assert static.schema.simpleString() == schema.simpleString()
    assert [(row.key, bytes(row.value), row.timestamp.microsecond) for row in static.collect()] == [
        (None, b"v", 123000)
    ] * 3


def test_a_subject_whose_spark_does_not_start_could_not_run() -> None:
    """Exit code 2, and not the 1 that means broken."""
    pipeline = atonce.Pipeline("p").read(atonce.Kafka("in")).transform(TEXT).write(atonce.SQLite("out.db", table="t"))
    with pytest.raises(SubjectFailed, match="did not start") as failed:
        verify_pipeline(pipeline, Options(launcher=("/bin/false",)))
    assert failed.value.exit_code == 2
