"""Transforms that give something else the next time: what each level makes of them, and which state is refused."""

from __future__ import annotations

import importlib
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.offsets import committed
from atonce.client.operate.admin import create_topic
from atonce.connectors.kafka.read.stream import source_schema
from atonce.delivery.events import Step
from atonce.errors import GuaranteeRefused
from atonce.spark.planning.determinism import surely_stateless, unproven
from atonce.spark.planning.pruning import unstarted
from tests.contract.pipeline.parts import Watcher, consume, produce, sqlite_output
from tests.contract.pipeline.test_kafka_sink import dies_once
from tests.contract.pipeline.test_ledger import Crash, crash

Make = Callable[..., atonce.Pipeline]
TEXT = "CAST(key AS STRING) AS key"


@pytest.fixture
def pipe(embedded: str, scratch: Path, spark: Any) -> Make:
    def make(transform: Any, guarantee: str = "effectively-once", **options: str) -> atonce.Pipeline:
        name = f"sure-{uuid.uuid4().hex[:8]}"
        with Cluster(embedded) as cluster:
            create_topic(cluster, name, partitions=2)
        produce(embedded, name, range(20), partitions=2)
        return (
            atonce.Pipeline(name, guarantee, checkpoint=str(scratch / name))
            .read(atonce.Kafka(name, servers=embedded, options=options))
            .transform(transform)
            .write(atonce.Kafka(f"{name}-out", servers=embedded))
        )

    return make


def delivered(pipeline: atonce.Pipeline, servers: str) -> list[tuple[str, str]]:
    return sorted((key or "", value or "") for key, value in consume(servers, f"{pipeline.name}-out"))


def die_after(step: Step, pipeline: atonce.Pipeline) -> None:
    with pytest.raises(Crash):
        replace(pipeline, observer=Watcher(step, crash)).run(available_now=True)


# What the levels promise of a transform without state


def test_at_least_once_may_show_a_record_twice_with_two_different_values(pipe: Make, embedded: str) -> None:
    pipeline = pipe(f"SELECT {TEXT}, uuid() AS value FROM input", "at-least-once")
    die_after(Step.OUTPUT_DONE, pipeline)
    pipeline.run(available_now=True)
    found = delivered(pipeline, embedded)
    assert set(Counter(key for key, _ in found).values()) == {2}
    assert len({value for _, value in found}) == 40


def test_time_of_a_batch_is_the_same_when_it_is_computed_again(pipe: Make, embedded: str) -> None:
    """`current_timestamp()` is part of the plan, `offsets/N`."""
    pipeline = pipe(f"SELECT {TEXT}, CAST(current_timestamp() AS STRING) AS value FROM input", "at-least-once")
    die_after(Step.OUTPUT_DONE, pipeline)
    pipeline.run(available_now=True)
    found = delivered(pipeline, embedded)
    assert set(Counter(found).values()) == {2}
    assert len({value for _, value in found}) == 1


@pytest.mark.parametrize("level", ["effectively-once", "at-most-once"])
def test_random_values_come_from_one_computation_although_a_task_died(
    pipe: Make, embedded: str, scratch: Path, spark: Any, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effectively once: every record, once. At most once: none of them twice."""
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    monkeypatch.setattr("atonce.delivery.progress.SMALL_BATCH_ROWS", 0)
    marker = scratch / "marker"
    dying = dies_once(marker)
    try:
        pipeline = pipe(
            lambda df: dying(df).selectExpr("key", "uuid() AS value", "int(rand() * 2) AS partition"), level
        )
        pipeline.run(available_now=True)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    assert marker.exists()
    keys = [key for key, _ in delivered(pipeline, embedded)]
    assert len(keys) == len(set(keys))
    assert level == "at-most-once" or len(keys) == 20


# State


def summed(df: Any) -> Any:
    """A sum of random numbers per key of two; records from 20 on add nothing to it."""
    from pyspark.sql import functions as F

    def drawn(number: int) -> int:
        import random

        return random.getrandbits(40) if number < 20 else 0

    number = F.expr("CAST(CAST(key AS STRING) AS INT)")
    rows = df.select((number % 2).cast("string").alias("key"), F.udf(drawn, "bigint")(number).alias("drawn"))
    return rows.groupBy("key").agg(F.sum("drawn").cast("string").alias("value"))


def test_state_from_a_random_function_is_refused_before_anything_is_made_or_claimed(pipe: Make, embedded: str) -> None:
    pipeline = pipe(summed)
    with pytest.raises(
        GuaranteeRefused, match=r"state of .* look into the function drawn\. Next: say deterministic: true"
    ) as refused:
        pipeline.run(available_now=True)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)
    with Cluster(embedded) as cluster:
        assert cluster.topic(f"{pipeline.name}-out", refresh=True) is None
        assert not committed(cluster, pipeline.name)
    replace(pipeline, guarantee="at-least-once").run(available_now=True)


def test_state_that_is_not_deterministic_no_longer_belongs_to_what_was_delivered(pipe: Make, embedded: str) -> None:
    """Killed between the batch's commit and `commits/0`: its state is computed again. So the word is asked for."""
    pipeline = replace(pipe(summed), deterministic=True)
    die_after(Step.DELIVERED, pipeline)
    before = dict(delivered(pipeline, embedded))
    produce(embedded, pipeline.name, range(20, 40), partitions=2)
    with pytest.raises(GuaranteeRefused):
        replace(pipeline, deterministic=False).run(available_now=True)
    assert dict(delivered(pipeline, embedded)) == before
    pipeline.run(available_now=True)
    after = set(delivered(pipeline, embedded)) - set(before.items())
    assert {key for key, _ in after} == {"0", "1"}, "nothing was added, and yet the sums are others"


def with_state_in_pandas(df: Any) -> Any:
    """`applyInPandasWithState`, planned as Spark plans it, which asks for pandas only to run it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType
    from pyspark.util import PythonEvalType

    def drawn(key: Any, frames: Any, state: Any) -> Any:
        import random

        state.update((random.random(),))
        yield from frames

    given = StructType.fromDDL("key binary, value string")
    kept = StructType.fromDDL("value double")
    made = importlib.import_module("pyspark.sql.pandas.functions").vectorized_udf(
        drawn, given, PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE
    )(*[df[name] for name in df.columns])
    parse = df.sparkSession._jsparkSession.parseDataType
    grouped = df.groupBy("key")._jgd
    planned = grouped.applyInPandasWithState(made._jc, parse(given.json()), parse(kept.json()), "Update", "NoTimeout")
    return DataFrame(planned, df.sparkSession)


def test_state_of_the_users_own_function_is_refused_without_the_word(pipe: Make) -> None:
    with pytest.raises(GuaranteeRefused, match="look into the function drawn"):
        pipe(with_state_in_pandas).run(available_now=True)


def plans(spark: Any) -> dict[str, tuple[Any, str | None]]:
    """What is asked of a stream, and what is found to feed its state."""
    from pyspark.sql import functions as F

    echo = F.udf(lambda value: value, "binary")
    names = spark.createDataFrame([(b"1", "one")], "key binary, name string")
    names.createOrReplaceTempView("determinism_names")
    in_names = "key IN (SELECT key FROM determinism_names)"
    return {
        "counted": (lambda df: df.groupBy("key").count(), None),
        "the time of the batch": (lambda df: df.groupBy("key").agg(F.max(F.current_timestamp())), None),
        "deduplicated": (lambda df: df.dropDuplicates(["key"]), None),
        "random before": (lambda df: df.withColumn("r", F.rand()).groupBy("key").agg(F.sum("r")), "rand()"),
        "random behind": (lambda df: df.groupBy("key").count().withColumn("id", F.expr("uuid()")), None),
        "a key at random": (lambda df: df.groupBy(F.expr("uuid()")).count(), "uuid()"),
        "a function before": (lambda df: df.groupBy(echo("key")).count(), "look into the function <lambda>"),
        "a function behind": (lambda df: df.groupBy("key").count().withColumn("k", echo("key")), None),
        "moved before by Spark": (lambda df: df.groupBy("key").count().where(echo("key") == b"1"), "<lambda>"),
        "first": (lambda df: df.groupBy("key").agg(F.first("value")), "first() depends on the order"),
        "listed": (lambda df: df.groupBy("key").agg(F.collect_list("value")), "collect_list() depends on the order"),
        "joined before": (lambda df: df.join(names, "key").groupBy("name").count(), "joined with may have changed"),
        "joined behind": (lambda df: df.groupBy("key").count().join(names, "key"), None),
        "asked in a subquery": (lambda df: df.where(in_names).groupBy("key").count(), "may have changed"),
        "no state at all": (lambda df: df.join(names, "key").select(echo("key"), F.rand()), None),
        "in pandas": (with_state_in_pandas, "look into the function drawn"),
    }


def test_what_feeds_a_state_and_cannot_be_proven_is_named_and_nothing_else(spark: Any) -> None:
    for what, (build, expected) in plans(spark).items():
        found = unproven(build(unstarted(spark, source_schema(False))))
        assert (found == []) if expected is None else any(expected in each for each in found), (what, found)


def test_explain_says_why_and_the_word_settles_it(pipe: Make) -> None:
    pipeline = pipe(summed)
    told = pipeline.explain()
    assert "verdict     refused, unless you say deterministic: true" in told
    assert "because   Spark cannot look into the function drawn" in told
    assert "verdict     given" in replace(pipeline, deterministic=True).explain()
    assert "verdict     given" in replace(pipeline, guarantee="at-least-once").explain()


def test_state_fed_by_map_arrow_needs_the_word(pipe: Make) -> None:
    counted = replace(pipe("SELECT key, CAST(count(*) AS STRING) AS value FROM input GROUP BY key"), transforms=())
    made = counted.map_arrow(lambda batch: batch.select(["key", "value"]))
    made = made.transform("SELECT key, CAST(count(*) AS STRING) AS value FROM input GROUP BY key")
    with pytest.raises(GuaranteeRefused, match="look into the function map_arrow"):
        made.run(available_now=True)


@pytest.mark.parametrize("word", [False, True])
def test_plain_structured_streaming_is_held_to_the_same(embedded: str, scratch: Path, spark: Any, word: bool) -> None:
    from pyspark.sql import functions as F

    made = sqlite_output(f"plain{uuid.uuid4().hex[:8]}", embedded, scratch, "")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counted = rows.groupBy(F.udf(lambda value: value % 2, "bigint")("value").alias("value")).count().select("value")
    query = (
        counted.writeStream.foreachBatch(atonce.deliver(made.sink, name="plain", deterministic=word))
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .outputMode("update")
        .trigger(once=True)
        .start()
    )
    if word:
        query.awaitTermination()
        assert sorted(made.values()) == ["0", "1"]
    else:
        with pytest.raises(Exception, match="look into the function <lambda>"):
            query.awaitTermination()
        with sqlite3.connect(made.sink.path) as connection:
            assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


@pytest.mark.parametrize(
    ("sql", "sure"),
    [
        ("SELECT key, upper(CAST(value AS STRING)) AS value FROM input", True),
        ("select * from input where length(value) > 3 and key in ('a')", True),
        ("SELECT count(*) FROM input", False),
        ("SELECT DISTINCT key FROM input", False),
        ("SELECT key FROM input a, input b WHERE a.key = b.key", False),
        ("SELECT key FROM input WHERE key IN (SELECT key FROM other)", False),
        ("SELECT key FROM other", False),
        ("SELECT key FROM input LIMIT 3", False),
        ("SELECT max_by(key, value) FROM input", False),
    ],
)
def test_only_one_plain_select_is_known_by_its_text(sql: str, sure: bool) -> None:
    assert surely_stateless(sql) is sure
