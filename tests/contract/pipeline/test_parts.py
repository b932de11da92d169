"""Parts on their own and together: publishing, other clusters, plain Structured Streaming, start and stop."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic, group_lag
from atonce.delivery.events import Event, Step
from atonce.errors import LedgerMismatch
from tests.contract.pipeline.parts import Watcher, consume, produce


def test_plain_structured_streaming_delivers_once_after_a_crash(embedded: str, scratch: Path, spark: Any) -> None:
    """`foreachBatch(atonce.deliver(…))` over Spark's own file source: opaque positions, compared by batch id."""
    name = f"plain-{uuid.uuid4().hex[:8]}"
    folder = scratch / "input"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"line {i}\n" for i in range(20)))

    def run(observer: Any = None) -> None:
        lines = spark.readStream.schema("value string").text(str(folder))
        deliver = atonce.deliver(atonce.Kafka(name, servers=embedded), name=name, observer=observer)
        query = (
            lines.writeStream.foreachBatch(deliver)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            deliver.close()

    def crash(_: Event) -> None:
        raise RuntimeError("the driver ends here")

    with pytest.raises(Exception, match="the driver ends here"):
        run(Watcher(Step.DELIVERED, crash))
    (folder / "b.txt").write_text("more\n")
    watcher = Watcher()
    run(watcher)
    assert Step.SKIPPED in watcher.steps()
    assert sorted(value or "" for _, value in consume(embedded, name)) == sorted(
        [*(f"line {i}" for i in range(20)), "more"]
    )
    (scratch / "checkpoint").rename(scratch / "lost")
    with pytest.raises(Exception, match="cannot be compared"):
        run()


def test_input_on_another_cluster_keeps_progress_with_the_output(
    embedded: str, apache_kafka: str, scratch: Path, spark: Any
) -> None:
    name = f"across-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=3)
    produce(embedded, name, range(30))
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / name))
        .read(atonce.Kafka(name, servers=embedded))
        .transform("SELECT key, CAST(value AS STRING) AS value FROM input")
        .write(atonce.Kafka(f"{name}-out", servers=apache_kafka))
    )
    pipeline.run(available_now=True)
    produce(embedded, name, range(30, 40))
    pipeline.run(available_now=True)
    values = sorted(value or "" for _, value in consume(apache_kafka, f"{name}-out"))
    assert values == sorted(f"value {i}" for i in range(40))
    with Cluster(apache_kafka) as cluster:
        assert {each.topic for each in group_lag(cluster, name)} == {f"{name}-out"}
    with Cluster(embedded) as cluster:
        assert sum(each.committed for each in group_lag(cluster, name)) == 40


@pytest.mark.parametrize("level", ["effectively-once", "none"])
def test_stopping_finishes_the_running_batch(embedded: str, scratch: Path, spark: Any, level: str) -> None:
    name = f"stop-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=3)
    produce(embedded, name, range(30))
    watcher = Watcher()
    pipeline = (
        atonce.Pipeline(name, level, checkpoint=str(scratch / name), observer=watcher)
        .read(atonce.Kafka(name, servers=embedded))
        .transform("SELECT key, CAST(value AS STRING) AS value FROM input")
        .write(atonce.Kafka(f"{name}-out", servers=embedded))
    )
    with pipeline.running() as run:
        run.start()
        watcher.at, watcher.act = Step.DELIVERED, lambda _: run.stop()
        waiting = threading.Thread(target=run.wait)
        waiting.start()
        waiting.join(60)
        assert not waiting.is_alive()
    assert watcher.steps()[-1] is Step.STOPPED
    replace(pipeline, observer=Watcher()).run(available_now=True)
    assert len(consume(embedded, f"{name}-out")) == 30


def test_a_started_pipeline_gives_sparks_own_query(embedded: str, scratch: Path, spark: Any) -> None:
    name = f"start-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=1)
    produce(embedded, name, range(5), partitions=1)
    query = (
        atonce.Pipeline(name, checkpoint=str(scratch / name))
        .read(atonce.Kafka(name, servers=embedded))
        .transform("SELECT key, value FROM input")
        .write(atonce.Kafka(f"{name}-out", servers=embedded))
        .start(available_now=True)
    )
    assert query.awaitTermination(60)
    assert query.name == name


def test_two_queries_of_one_name_that_are_not_the_same_are_refused(embedded: str, scratch: Path, spark: Any) -> None:
    """An opaque source under a fresh checkpoint: another query id, so nothing can be compared."""
    name = f"again-{uuid.uuid4().hex[:8]}"
    folder = scratch / "input"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / "one"))
        .read(atonce.Files(str(folder), format="text"))
        .write(atonce.Kafka(name, servers=embedded))
    )
    pipeline.run(available_now=True)
    with pytest.raises(LedgerMismatch, match=r"cannot be compared.*atonce reset"):
        replace(pipeline, checkpoint=str(scratch / "two")).run(available_now=True)
    (folder / "b.txt").write_text("two\n")
    pipeline.run(available_now=True)
    assert sorted(value or "" for _, value in consume(embedded, name)) == ["one", "two"]
