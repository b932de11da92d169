"""Batches whose transform puts rows elsewhere when it is computed a second time, under a Spark that runs stages again.

Run as a script by the crash tests: prints one line of JSON per scenario, with what was delivered and what was told.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS, PARTS = 40, 4
CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"
Lose = Callable[[], None]


def shuffle_files(spark: Any) -> Lose:
    """Removes what every finished map task has left for its readers, as the loss of an executor does."""
    folder = spark.sparkContext.getConf().get("spark.local.dir")

    def lose() -> None:
        for file in Path(folder).rglob("shuffle_*"):
            file.unlink(missing_ok=True)

    return lose


def placed(spark: Any, marker: Path) -> Any:
    """Rows with a place from 0 to 3, which is another one whenever the task that chooses it runs again."""
    from atonce.spark.arrow_job import map_in_arrow

    def choose(batches: Any) -> Any:
        import pyarrow as pa
        from pyspark import TaskContext

        mine = marker / f"ran-{TaskContext.get().partitionId()}"
        shift = len(list(marker.glob(f"{mine.name}-*")))
        (marker / f"{mine.name}-{TaskContext.get().taskAttemptId()}").touch()
        for batch in batches:
            ids = batch.column(0).to_pylist()
            yield pa.RecordBatch.from_pydict(
                {"id": ids, "place": pa.array([(i + shift) % PARTS for i in ids], pa.int32())}
            )

    return map_in_arrow(spark.range(0, ROWS, 1, 2), choose, "id bigint, place int")


def moving(spark: Any, marker: Path, lose: Lose) -> Any:
    """The same, shuffled by place, so that each task of the next stage has the rows of one place.

    The first of them loses the shuffle, the second waits for that: the others find nothing and have it made again.
    """
    from atonce.spark.arrow_job import map_in_arrow

    def strike(batches: Any) -> Any:
        import time

        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        lost = marker / "lost"
        yield from batches
        if number == 0 and not lost.exists():
            lose()
            lost.touch()
        while number == 1 and not lost.exists():
            time.sleep(0.01)

    shuffled = placed(spark, marker).repartitionById(PARTS, "place")
    return map_in_arrow(shuffled, strike, "id bigint, place int")


def deliver(opened: Any, batch: Any, progress: Any, level: str) -> list[str]:
    """As the engine does it, without its waits: what was told of attempts that failed."""
    from atonce.errors import RetriableError
    from atonce.spark.task_errors import of_job

    told: list[str] = []
    for _ in range(4):
        try:
            if level == "effectively-once":
                opened.output_and_progress(batch, progress)
            else:
                opened.output(batch)
            return told
        except Exception as raised:
            error = of_job(raised)
            told.append(f"{type(error).__name__}: {str(error)[:300]}")
            if not isinstance(error, RetriableError) or level == "at-most-once":
                return told
    return [*told, "never delivered"]


def into_sqlite(spark: Any, level: str, _: str) -> dict[str, Any]:
    from tests.contract.connectors.sql.database import batch, identity, progress, sqlite_at

    marker = Path(tempfile.mkdtemp(prefix="atonce-test-"))
    who, database = identity("retried"), sqlite_at(marker)
    opened = database.sink("t").open(who, spark)
    opened.claim()
    df = moving(spark, marker, shuffle_files(spark)).select("id")
    told = deliver(opened, batch(df, 0), progress(who, 0), level)
    opened.close()
    return {"delivered": database.ids("t"), "told": told, "struck": (marker / "lost").exists()}


def into_kafka(spark: Any, level: str, servers: str, *, between_encoder_and_sender: bool) -> dict[str, Any]:
    from dataclasses import replace

    import atonce
    from atonce.connectors.kafka.sink import KafkaSink
    from atonce.connectors.kafka.write.lease import LeaseServer
    from atonce.delivery import progress as small
    from atonce.guarantee import Guarantee
    from tests.contract.connectors.sql.database import batch, identity, progress
    from tests.contract.pipeline.parts import consume

    small.SMALL_BATCH_ROWS = 0
    marker = Path(tempfile.mkdtemp(prefix="atonce-test-"))
    topic = f"retried-{uuid.uuid4().hex[:8]}"
    who = replace(identity(topic), guarantee=Guarantee(level))
    opened = KafkaSink(atonce.Kafka(topic, servers=servers, partitions=PARTS)).open(who, spark)
    opened.claim()
    lose = shuffle_files(spark)
    grant = LeaseServer._grant

    def losing(self: Any, *request: Any) -> bool:
        if not (marker / "lost").exists():
            lose()
            (marker / "lost").touch()
        return grant(self, *request)

    if between_encoder_and_sender:
        LeaseServer._grant = losing  # type: ignore[method-assign]
        rows = placed(spark, marker)
    else:
        rows = moving(spark, marker, lose)
    df = rows.selectExpr("CAST(id AS STRING) AS value", "place AS partition")
    try:
        told = deliver(opened, batch(df, 0), progress(who, 0), level)
    finally:
        LeaseServer._grant = grant  # type: ignore[method-assign]
    opened.close()
    delivered = sorted(int(value or -1) for _, value in consume(servers, topic))
    return {"delivered": delivered, "told": told, "struck": (marker / "lost").exists()}


SCENARIOS: dict[str, Callable[[Any, str, str], dict[str, Any]]] = {
    "sqlite": into_sqlite,
    "kafka": lambda *given: into_kafka(*given, between_encoder_and_sender=False),
    "kafka-senders": lambda *given: into_kafka(*given, between_encoder_and_sender=True),
}


def main(servers: str, attempts: str, *wanted: str) -> None:
    from atonce.spark.session import session

    # Spark's own check notices only what two executions of a map task left behind, and only when a reader has finished.
    conf = {CHECKSUMS: "false", "spark.local.dir": tempfile.mkdtemp(prefix="atonce-test-")}
    if attempts:
        conf["spark.stage.maxConsecutiveAttempts"] = attempts
    spark = session(master="local[2]", conf=conf)
    for each in wanted:
        kind, _, level = each.partition(":")
        print(json.dumps({"scenario": each, **SCENARIOS[kind](spark, level, servers)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
