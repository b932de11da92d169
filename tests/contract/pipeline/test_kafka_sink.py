"""The traps of one transaction shared by all tasks (DESIGN section 5), each provoked once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.offsets import TopicPartition
from atonce.client.operate.admin import create_topic
from atonce.client.transaction import Transaction
from atonce.connectors.kafka import open as kafka_open
from atonce.connectors.kafka.protocol import asked
from atonce.connectors.kafka.sink import KafkaSink
from atonce.connectors.kafka.write import lease as kafka_lease
from atonce.connectors.kafka.write.blobs import Encoder, Targets
from atonce.connectors.kafka.write.lease import LeaseServer
from atonce.connectors.kafka.write.send import SendTask
from atonce.delivery import progress
from atonce.delivery.contract import Identity
from atonce.delivery.events import Event, Step
from atonce.errors import AttemptAborted, InvariantError, RefusedError, ReplacedError, UndeliverableRow, UsageError
from atonce.guarantee import Guarantee
from tests.contract.pipeline.parts import Watcher, consume, produce

Make = Callable[..., atonce.Pipeline]
COPY = "SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input"


@pytest.fixture(
    params=[
        "protocol-2",
        "embedded_v1",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("kafka_3_9", "kafka_3_9_unverified", "kafka_4_3_v1")),
    ]
)
def embedded(request: pytest.FixtureRequest, embedded: str) -> str:
    """The same traps on brokers of both transaction protocols."""
    return embedded if request.param == "protocol-2" else str(request.getfixturevalue(request.param))


@pytest.fixture
def copy(embedded: str, scratch: Path, spark: Any) -> Make:
    """A pipeline from a fresh topic with records to another, effectively once."""

    def make(records: int = 60, partitions: int = 3, transform: Any = COPY, **sink: Any) -> atonce.Pipeline:
        name = f"trap-{uuid.uuid4().hex[:8]}"
        with Cluster(embedded) as cluster:
            create_topic(cluster, name, partitions=partitions)
        produce(embedded, name, range(records), partitions)
        return (
            atonce.Pipeline(name, checkpoint=str(scratch / name))
            .read(atonce.Kafka(name, servers=embedded))
            .transform(transform)
            .write(
                atonce.Kafka(
                    **{"topic": f"{name}-out", "servers": embedded, "unverified_transactions": "allow", **sink}
                )
            )
        )

    return make


def delivered(pipeline: atonce.Pipeline, servers: str) -> list[str]:
    return sorted(value or "" for _, value in consume(servers, f"{pipeline.name}-out"))


def expected(records: int) -> list[str]:
    return sorted(f"value {i}" for i in range(records))


def dies_once(marker: Path) -> Callable[[Any], Any]:
    """A transform whose Python worker is killed in the middle of its second record batch, the first time."""

    def transform(df: Any) -> Any:
        from atonce.spark.arrow_job import map_in_arrow

        def rows(batches: Any) -> Any:
            import os
            import signal

            for number, batch in enumerate(batches):
                if number == 1 and not marker.exists():
                    marker.write_text("killed")
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        chosen = df.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        return map_in_arrow(chosen, rows, "key string, value string")

    return transform


@pytest.mark.usefixtures("ten_rows_per_batch")
@pytest.mark.parametrize("small", [True, False])
def test_python_worker_killed_mid_write_loses_and_doubles_nothing(
    copy: Make, embedded: str, scratch: Path, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F10, F20: part of the batch is in the log already; it is aborted, and the batch runs again."""
    if not small:
        monkeypatch.setattr(progress, "SMALL_BATCH_ROWS", 0)
    marker, watcher = scratch / "marker", Watcher()
    pipeline = replace(copy(transform=dies_once(marker)), observer=watcher)
    pipeline.run(available_now=True)
    assert marker.exists()
    assert Step.ABORTED in watcher.steps()
    assert delivered(pipeline, embedded) == expected(60)


def test_newer_instance_replaces_the_older_one(copy: Make, embedded: str, spark: Any) -> None:
    """F16: the older instance is fenced in the middle of a batch, reads the claim, and stops. Nothing of it is visible."""
    pipeline = copy()
    newer = Identity(
        name=pipeline.name,
        instance="newer",
        guarantee=Guarantee.EFFECTIVELY_ONCE,
        source=pipeline.at(embedded).source.as_source(),
    )

    def claim_it(_: Event) -> None:
        opened = KafkaSink(pipeline.sink).open(newer, spark)
        assert opened.claim() is not None
        opened.close()

    with pytest.raises(ReplacedError, match=r"taken over by a newer instance \(instance newer holds its claim\)"):
        replace(pipeline, observer=Watcher(Step.OUTPUT_DONE, claim_it)).run(available_now=True)
    assert delivered(pipeline, embedded) == []
    pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == expected(60)


@pytest.mark.parametrize("step", [Step.OUTPUT_BEGUN, Step.OUTPUT_DONE])
def test_driver_whose_transaction_timed_out_goes_on_with_a_new_one(copy: Make, embedded: str, step: Step) -> None:
    """F19: fenced, but the claim is its own: the batch runs again under the next epoch. Its tasks may notice first."""
    pipeline = copy()

    def time_out(_: Event) -> None:
        with Cluster(embedded) as cluster:
            Transaction(cluster, pipeline.name, 60_000).init()  # what the coordinator does when the time is over

    watcher = Watcher(step, time_out)
    replace(pipeline, observer=watcher).run(available_now=True)
    assert watcher.act is None
    assert watcher.steps().count(Step.OUTPUT_BEGUN) == 2
    assert delivered(pipeline, embedded) == expected(60)


def slow(df: Any) -> Any:
    """About 2.4 s per sixty rows, in batches of ten."""
    from atonce.spark.arrow_job import map_in_arrow

    def rows(batches: Any) -> Any:
        import time

        for batch in batches:
            yield batch
            time.sleep(0.4)

    # Long values, so that nothing waits in a buffer between the two workers, or for the rows after it.
    long = df.selectExpr("CAST(key AS STRING) AS key", "rpad(CAST(value AS STRING), 120000, ' ') AS value")
    return map_in_arrow(long, rows, "key string, value string")


@pytest.fixture
def ten_rows_per_batch(spark: Any) -> Iterator[None]:
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    yield
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


@pytest.mark.usefixtures("ten_rows_per_batch")
def test_batch_that_outlives_its_transaction_runs_again_with_a_longer_one(copy: Make, embedded: str) -> None:
    watcher = Watcher()
    pipeline = replace(copy(partitions=1, transform=slow, transaction_timeout_ms=1_000), observer=watcher)
    pipeline.run(available_now=True)
    reasons = [event.why for event in watcher.events if event.step is Step.ABORTED]
    assert any("transaction's time" in reason for reason in reasons), reasons
    assert [value.strip() for value in delivered(pipeline, embedded)] == expected(60)


@pytest.mark.usefixtures("ten_rows_per_batch")
def test_batch_that_fits_no_transaction_stops_with_advice(
    copy: Make, embedded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_open, "broker_config", lambda *_: 1_500)  # what a stricter broker would answer
    pipeline = copy(partitions=1, transform=slow, transaction_timeout_ms=1_000)
    with pytest.raises(RefusedError, match=r"transaction.max.timeout.ms=1500.*Next: make batches smaller"):
        pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == []


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second attempt learns soon that the first has finished; Spark would end it meanwhile."""
    monkeypatch.setattr(kafka_lease, "ENDED_WITHIN_S", 0.1)


@pytest.mark.usefixtures("told_at_once")
def test_second_attempt_of_a_task_may_not_write(embedded: str) -> None:
    """F20: a retried task is refused under effectively-once, and silently writes nothing under at-most-once."""
    import pyarrow as pa

    topic = f"lease-{uuid.uuid4().hex[:8]}"
    rows = pa.RecordBatch.from_pydict({"key": ["a"] * 5, "value": ["x"] * 5})
    encoder = Encoder(targets=Targets(partitions={topic: 1}, slots=1), topic=topic)
    server = LeaseServer()
    with Cluster(embedded) as cluster:
        create_topic(cluster, topic, partitions=1)
        place = TopicPartition(topic, 0)
        transaction = asked(cluster).transactions(cluster, topic, lambda: [place], lambda: None)(60_000)
        transaction.init()
        producer_id, epoch = transaction.producer_id, transaction.epoch
        leased = SendTask(
            servers=embedded,
            config={},
            mode="transaction",
            transactional_id=topic,
            producer_id=producer_id,
            epoch=epoch,
            protocol=transaction.protocol,
            lease=server.open("1", admit=lambda *_: transaction.grant(place, producer_id, epoch)).address,
            encoder=encoder,
        )
        list(leased([rows]))
        with pytest.raises(AttemptAborted, match="leased to another attempt"):
            list(leased([rows]))
        transaction.end(commit=True)
        transaction.wait_complete()
        forgetting = replace(
            leased, mode="forget", transactional_id=None, producer_id=-1, epoch=-1, lease=server.open("2").address
        )
        list(forgetting([rows]))
        list(forgetting([rows]))
    server.close()
    assert len(consume(embedded, topic)) == 10


@pytest.mark.usefixtures("told_at_once")
def test_second_execution_of_a_whole_batch_sends_nothing_at_most_once_wherever_it_would_put_its_rows(
    embedded: str,
) -> None:
    """F20: the first one died on its way, and the partitions that it had not reached yet are not free for the second."""
    import pyarrow as pa

    topic = f"lease-{uuid.uuid4().hex[:8]}"
    server = LeaseServer()
    with Cluster(embedded) as cluster:
        create_topic(cluster, topic, partitions=2)
    task = SendTask(
        servers=embedded,
        config={},
        mode="forget",
        lease=server.open("1").address,
        encoder=Encoder(targets=Targets(partitions={topic: 2}, slots=1), topic=topic),
    )

    def execution(partition: int) -> Any:
        places = pa.array([partition] * 5, pa.int32())
        yield pa.RecordBatch.from_pydict({"value": [f"{i}" for i in range(5)], "partition": places})

    list(task(execution(0)))
    list(task(execution(1)))
    server.close()
    assert sorted(value or "" for _, value in consume(embedded, topic)) == ["0", "1", "2", "3", "4"]


def test_nothing_is_sent_into_a_transaction_without_a_producer_id() -> None:
    with pytest.raises(InvariantError, match="producer id -1"):
        list(SendTask(servers="nowhere:1", config={}, mode="transaction")([]))


def test_undeliverable_row_stops_the_pipeline_with_its_partition_and_offset(copy: Make, embedded: str) -> None:
    grown = "SELECT key, IF(CAST(value AS STRING) = 'value 31', repeat('x', 2000000), CAST(value AS STRING)) AS value FROM input"
    pipeline = copy(transform=grown)
    with pytest.raises(
        UndeliverableRow, match=rf"input '{pipeline.name}' partition 1 offset 10: .*takes 2000\d\d\d bytes"
    ):
        pipeline.run(available_now=True)
    assert consume(embedded, f"{pipeline.name}-out") == []


def test_undeliverable_row_goes_to_the_dead_letter_topic_with_the_rest_of_its_batch(copy: Make, embedded: str) -> None:
    grown = "SELECT key, IF(CAST(value AS STRING) = 'value 31', repeat('x', 2000000), CAST(value AS STRING)) AS value FROM input"
    dead = f"dead-{uuid.uuid4().hex[:8]}"
    pipeline = copy(transform=grown, on_error="dead-letter", dead_letter=dead)
    pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == sorted(set(expected(60)) - {"value 31"})
    name = f"{pipeline.name}/{pipeline.name}-out/{pipeline.name}/1/10/0"
    assert consume(embedded, dead) == [(name, "value 31")], "with the original value, which fits"


def test_topics_by_column_are_created_with_the_partitions_of_the_input(
    copy: Make, embedded: str, capsys: Any, request: pytest.FixtureRequest
) -> None:
    if "kafka_3_9_unverified" in request.node.name:
        with pytest.raises(UsageError, match="rows choose their topic by column"):
            copy(topic=None).run(available_now=True)
        return
    fan = f"fan-{uuid.uuid4().hex[:8]}"
    by_column = f"SELECT key, value, concat('{fan}-', CAST(CAST(key AS STRING) AS INT) % 2) AS topic FROM input"
    copy(transform=by_column, topic=None).run(available_now=True)
    assert len(consume(embedded, f"{fan}-0")) == 30
    assert len(consume(embedded, f"{fan}-1")) == 30
    assert f"created topic {fan}-0 with 3 partitions" in capsys.readouterr().out
    with Cluster(embedded) as cluster:
        found = cluster.topic(f"{fan}-1")
        assert found is not None
        assert len(found.partitions) == 3


def test_missing_topic_is_refused_when_it_may_not_be_created(copy: Make) -> None:
    with pytest.raises(UsageError, match="create: false"):
        copy(create=False).run(available_now=True)


def test_wrong_columns_are_refused_before_anything_starts(copy: Make, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="needs a column `value`"):
        copy(transform="SELECT key FROM input").run(available_now=True)
    with pytest.raises(UsageError, match=r"column `value` is bigint.*CAST\(value AS STRING\)"):
        copy(transform="SELECT offset AS value FROM input").run(available_now=True)
    with pytest.raises(UsageError, match=r"the transform of .* fails"):
        copy(transform="SELECT nothing FROM input").run(available_now=True)
    assert "nothing" not in capfd.readouterr().err, "it is told once"


def test_arrow_transform_runs_in_the_source_and_shuffles_only_blobs(
    copy: Make, embedded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SMALL_BATCH_ROWS", 0)

    def shout(batch: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        upper = pc.ascii_upper(batch.column("value").cast(pa.string()))
        return pa.RecordBatch.from_arrays([batch.column("key"), upper], names=["key", "value"])

    pipeline = replace(copy(), transforms=()).map_arrow(shout)
    pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == sorted(value.upper() for value in expected(60))


@pytest.mark.parametrize("by", ["sql", "map_arrow"])
def test_short_ranges_of_many_partitions_share_tasks_and_keep_every_record_and_its_order(
    copy: Make, embedded: str, by: str
) -> None:
    records, partitions = 24_000, 40
    assert records > progress.SMALL_BATCH_ROWS, "one task would read it all"

    def by_partition(batch: Any) -> Any:
        import pyarrow as pa

        return pa.record_batch({"key": batch.column("partition").cast(pa.string()), "value": batch.column("value")})

    made = copy(records, partitions, "SELECT CAST(partition AS STRING) AS key, value FROM input")
    pipeline = made if by == "sql" else replace(made, transforms=()).map_arrow(by_partition)
    pipeline.run(available_now=True)
    found: dict[str, list[str]] = {}
    for key, value in consume(embedded, f"{pipeline.name}-out"):
        found.setdefault(key or "", []).append(value or "")
    assert found == {str(p): [f"value {i}" for i in range(p, records, partitions)] for p in range(partitions)}
