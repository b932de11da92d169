"""The ledger against the checkpoint: what is resumed, and what is refused and with which words (DESIGN section 4)."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.offsets import Committed, TopicPartition, commit, committed
from atonce.client.operate.admin import create_topic, delete_topic
from atonce.delivery.events import Event, Step
from atonce.errors import LedgerMismatch, UsageError
from tests.contract.pipeline.parts import Watcher, consume, produce, sqlite_output

Make = Callable[..., atonce.Pipeline]


@pytest.fixture
def pipe(embedded: str, scratch: Path, spark: Any) -> Make:
    def make(
        transform: Any = "SELECT key, CAST(value AS STRING) AS value FROM input", **options: str
    ) -> atonce.Pipeline:
        name = f"ledger-{uuid.uuid4().hex[:8]}"
        with Cluster(embedded) as cluster:
            create_topic(cluster, name, partitions=2)
        produce(embedded, name, range(40), partitions=2)
        return (
            atonce.Pipeline(name, checkpoint=str(scratch / name))
            .read(atonce.Kafka(name, servers=embedded, options=options))
            .transform(transform)
            .write(atonce.Kafka(f"{name}-out", servers=embedded))
        )

    return make


def delivered(pipeline: atonce.Pipeline, servers: str) -> list[str]:
    return sorted(value or "" for _, value in consume(servers, f"{pipeline.name}-out"))


def expected(records: int) -> list[str]:
    return sorted(f"value {i}" for i in range(records))


class Crash(Exception):
    """Stands for the end of the driver: nothing after it is executed."""


def crash(_: Event) -> None:
    raise Crash


def test_deleted_checkpoint_is_begun_again_from_the_ledger(pipe: Make, embedded: str, scratch: Path) -> None:
    """F21."""
    pipeline = pipe()
    pipeline.run(available_now=True)
    shutil.rmtree(scratch / pipeline.name)
    produce(embedded, pipeline.name, range(40, 60), partitions=2)
    pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == expected(60)


@pytest.mark.parametrize("name", ["metadata", "atonce.json"])
def test_torn_checkpoint_is_begun_again_from_the_ledger_or_refused_if_it_has_state(
    pipe: Make, embedded: str, scratch: Path, name: str
) -> None:
    """A power cut under Spark's own files, or ours."""
    plain, stateful = pipe(), pipe(transform="SELECT CAST(count(*) AS STRING) AS value FROM input")
    for pipeline in (plain, stateful):
        pipeline.run(available_now=True)
        (scratch / pipeline.name / name).write_text('{"id')
    produce(embedded, plain.name, range(40, 60), partitions=2)
    plain.run(available_now=True)
    assert delivered(plain, embedded) == expected(60)
    with pytest.raises(LedgerMismatch, match=rf"{stateful.name}/{name} is torn.*Next: restore the checkpoint"):
        stateful.run(available_now=True)


def test_checkpoint_that_is_a_version_behind_is_begun_again_from_the_ledger(
    pipe: Make, embedded: str, scratch: Path
) -> None:
    """F21: without the rule, batch 1 would be delivered twice or passed over in silence."""
    pipeline = pipe()
    pipeline.run(available_now=True)
    shutil.copytree(scratch / pipeline.name, scratch / "old")
    produce(embedded, pipeline.name, range(40, 60), partitions=2)
    pipeline.run(available_now=True)
    shutil.rmtree(scratch / pipeline.name)
    (scratch / "old").rename(scratch / pipeline.name)
    produce(embedded, pipeline.name, range(60, 70), partitions=2)
    said: list[str] = []
    replace(pipeline, say=said.append).run(available_now=True)
    assert delivered(pipeline, embedded) == expected(70)
    assert "fresh checkpoint" in said[0]


def test_group_that_a_tool_has_reset_is_refused(pipe: Make, embedded: str) -> None:
    """F27."""
    pipeline = pipe()
    pipeline.run(available_now=True)
    with Cluster(embedded) as cluster:
        commit(cluster, pipeline.name, {TopicPartition(pipeline.name, 0): Committed(offset=3)})
    both = rf"{pipeline.name}/0 at 3.*atonce reset.*has planned batch 0, up to .*'{pipeline.name}/0': 20"
    with pytest.raises(LedgerMismatch, match=both):
        pipeline.run(available_now=True)
    pipeline.reset("earliest")
    pipeline.run(available_now=True)
    assert Counter(delivered(pipeline, embedded)) == Counter(expected(40) * 2)


def test_ledger_that_is_older_than_the_output_is_refused(pipe: Make, embedded: str) -> None:
    """F27: a failover to a copy of the group that lagged. Its tokens are our own, its output is not older."""
    pipeline = pipe()
    pipeline.run(available_now=True)
    with Cluster(embedded) as cluster:
        older = committed(cluster, pipeline.name)
    produce(embedded, pipeline.name, range(40, 60), partitions=2)
    pipeline.run(available_now=True)
    with Cluster(embedded) as cluster:
        commit(cluster, pipeline.name, dict(older))
    with pytest.raises(
        LedgerMismatch, match=rf"stands at .*'{pipeline.name}/0': 20.*up to .*'{pipeline.name}/0': 30.* was delivered"
    ):
        pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == expected(60)


def test_database_restored_with_its_ledger_is_resumed_from(embedded: str, scratch: Path, spark: Any) -> None:
    """F27: output and ledger are one, so what the restored ledger says is what the restored output holds."""
    name = f"restored-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
    made = sqlite_output(name, embedded, scratch, "")
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / name))
        .read(atonce.Kafka(name, servers=embedded))
        .transform("SELECT CAST(value AS STRING) AS value FROM input")
        .write(made.sink)
    )
    produce(embedded, name, range(20), partitions=2)
    pipeline.run(available_now=True)
    file = Path(made.sink.path)
    shutil.copy(file, scratch / "backup.db")
    produce(embedded, name, range(20, 40), partitions=2)
    pipeline.run(available_now=True)
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    shutil.copy(scratch / "backup.db", file)
    produce(embedded, name, range(40, 50), partitions=2)
    said: list[str] = []
    replace(pipeline, say=said.append).run(available_now=True)
    assert sorted(made.values()) == expected(50)
    assert "Going on from the ledger" in said[0] and f"'{name}/0': 10" in said[0]


def test_recreated_input_topic_is_refused(pipe: Make, embedded: str) -> None:
    """F27: the same name, another topic id."""
    pipeline = pipe()
    pipeline.run(available_now=True)
    with Cluster(embedded) as cluster:
        delete_topic(cluster, pipeline.name)
        create_topic(cluster, pipeline.name, partitions=2)
    produce(embedded, pipeline.name, range(100), partitions=2)
    # A broker drops a deleted topic's offsets, and then the ledger is empty; both are refused, with what to do.
    with pytest.raises(LedgerMismatch, match=r"(deleted and made again|ledger holds nothing).*atonce reset"):
        pipeline.run(available_now=True)


def test_checkpoint_without_a_ledger_is_refused(pipe: Make, embedded: str) -> None:
    pipeline = pipe()
    pipeline.run(available_now=True)
    with pytest.raises(LedgerMismatch, match="ledger holds nothing"):
        replace(pipeline, name=f"{pipeline.name}-renamed", checkpoint=pipeline.checkpoint).run(available_now=True)


def as_it_is(batch: Any) -> Any:
    return batch.select(["key", "value"])


@pytest.mark.parametrize("inside_the_source", [False, True])
def test_delivered_batch_whose_spark_commit_is_missing_is_skipped(
    pipe: Make, embedded: str, inside_the_source: bool
) -> None:
    pipeline = replace(pipe(), transforms=()).map_arrow(as_it_is) if inside_the_source else pipe()
    with pytest.raises(Crash):
        replace(pipeline, observer=Watcher(Step.DELIVERED, crash)).run(available_now=True)
    watcher = Watcher()
    replace(pipeline, observer=watcher).run(available_now=True)
    assert Step.SKIPPED in watcher.steps()
    assert delivered(pipeline, embedded) == expected(40)


@pytest.mark.parametrize("step", [Step.OUTPUT_DONE, Step.COMMITTED])
def test_state_is_as_if_each_record_was_applied_once(pipe: Make, embedded: str, step: Step) -> None:
    """S17: after a crash before the commit the state is what it was; after it, the skipped batch still advances it."""
    counted = "SELECT CAST(CAST(CAST(key AS STRING) AS INT) % 4 AS STRING) AS key, CAST(count(*) AS STRING) AS value FROM input GROUP BY 1"
    pipeline = pipe(transform=counted, maxOffsetsPerTrigger="20")
    with pytest.raises(Crash):
        replace(pipeline, observer=Watcher(step, crash)).run(available_now=True)
    pipeline.run(available_now=True)
    produce(embedded, pipeline.name, range(40, 80), partitions=2)
    pipeline.run(available_now=True)
    newest: dict[str, int] = {}
    for key, value in consume(embedded, f"{pipeline.name}-out"):
        newest[str(key)] = max(newest.get(str(key), 0), int(value or 0))
    assert newest == {"0": 20, "1": 20, "2": 20, "3": 20}


def test_stateful_pipeline_without_its_checkpoint_is_refused(pipe: Make, scratch: Path) -> None:
    pipeline = pipe(transform="SELECT CAST(count(*) AS STRING) AS value FROM input")
    pipeline.run(available_now=True)
    shutil.rmtree(scratch / pipeline.name)
    with pytest.raises(LedgerMismatch, match="with it the state"):
        pipeline.run(available_now=True)


def test_reset_to_latest_skips_and_to_offsets_repeats(pipe: Make, embedded: str) -> None:
    pipeline = pipe()
    pipeline.reset("latest")
    produce(embedded, pipeline.name, range(40, 50), partitions=2)
    pipeline.run(available_now=True)
    assert delivered(pipeline, embedded) == sorted(f"value {i}" for i in range(40, 50))
    pipeline.reset(f"{pipeline.name}/0=24")  # partition 1 stays where it is
    pipeline.run(available_now=True)
    assert Counter(delivered(pipeline, embedded)) == Counter([*(f"value {i}" for i in range(40, 50)), "value 48"])
    with pytest.raises(UsageError, match="elsewhere/0 is not part of the input"):
        pipeline.reset("elsewhere/0=1")


def test_changed_transform_is_noticed_and_explained(pipe: Make, embedded: str) -> None:
    pipeline = pipe()
    pipeline.run(available_now=True)
    said: list[str] = []
    changed = replace(pipeline, transforms=("SELECT key, 'new' AS value FROM input",), say=said.append)
    produce(embedded, pipeline.name, range(40, 42), partitions=2)
    changed.run(available_now=True)
    assert "transform changed since the last run. Kept: progress" in said[0]
    assert delivered(pipeline, embedded).count("new") == 2
