"""What a query with Spark's own Kafka connector left in its checkpoint, and when that cannot be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery.moving.adopt import Left
from atonce.errors import RefusedError, UsageError
from atonce.spark.checkpoint.left import left_by_query

PARSE = KafkaSource(Kafka("orders")).positions


def line(*offsets: int) -> str:
    return json.dumps({"orders": {str(partition): at for partition, at in enumerate(offsets)}})


def write(folder: Path, name: str, text: str) -> None:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def plan(folder: Path, batch: int, *lines: str) -> None:
    write(folder, f"offsets/{batch}", "\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))


def commit(folder: Path, batch: int) -> None:
    write(folder, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


def left(folder: Path, pause: Callable[[float], None] = lambda _: None) -> Left:
    return left_by_query(str(folder), None, PARSE, pause)


@pytest.fixture
def three(scratch: Path) -> Path:
    """Batches 0 to 2, all of them committed."""
    write(scratch, "metadata", '{"id":"a"}')
    write(scratch, "sources/0/0", f"\0v1\n{line(1, 2)}")
    for batch in range(3):
        plan(scratch, batch, line(10 * batch, 10 * batch + 5))
        commit(scratch, batch)
    return scratch


def test_the_newest_committed_batch_says_where_the_query_ended(three: Path) -> None:
    assert left(three) == Left(path=str(three), committed=2, end={"orders/0": 20, "orders/1": 25})


def test_a_batch_that_was_planned_and_not_committed_is_told_apart(three: Path) -> None:
    plan(three, 3, line(31, 32))
    found = left(three)
    assert (found.committed, found.end) == (2, {"orders/0": 20, "orders/1": 25})
    assert found.unfinished == {"orders/0": 31, "orders/1": 32}


def test_where_nothing_was_committed_the_connector_itself_wrote_down_where_it_began(scratch: Path) -> None:
    write(scratch, "sources/0/0", f"\0v1\n{line(3, 4)}")
    plan(scratch, 0, line(9, 9))
    found = left(scratch)
    assert (found.committed, found.end, found.unfinished) == (
        None,
        {"orders/0": 3, "orders/1": 4},
        {"orders/0": 9, "orders/1": 9},
    )


def test_where_the_beginning_cannot_be_read_nothing_is_guessed(scratch: Path) -> None:
    plan(scratch, 0, line(9, 9))
    with pytest.raises(RefusedError, match=r"where the first one began \(sources/0/0\) cannot be read"):
        left(scratch)


@pytest.mark.parametrize("which", ["offsets", "commits"])
def test_holes_in_the_logs_are_those_of_asynchronous_progress_tracking(three: Path, which: str) -> None:
    (three / which / "1").unlink()
    with pytest.raises(RefusedError, match="asyncProgressTrackingEnabled"):
        left(three)


def test_more_planned_than_one_batch_ahead_is_asynchronous_too(three: Path) -> None:
    plan(three, 3, line(31, 32))
    plan(three, 4, line(41, 42))
    with pytest.raises(RefusedError, match="planned up to 4, committed up to 2"):
        left(three)


def test_holes_among_batches_that_are_long_over_are_left_by_cleaning_up(scratch: Path) -> None:
    plan(scratch, 3, line(3, 3))
    commit(scratch, 3)
    for batch in range(100, 140):
        plan(scratch, batch, line(batch, batch))
        commit(scratch, batch)
    assert left(scratch).committed == 139


def test_state_cannot_be_taken_over(three: Path) -> None:
    write(three, "state/0/0/1.delta", "")
    with pytest.raises(RefusedError, match="holds state"):
        left(three)


def test_several_sources_are_refused(three: Path) -> None:
    plan(three, 3, line(31, 32), line(1, 2))
    commit(three, 3)
    with pytest.raises(RefusedError, match="reads 2 sources, and a pipeline reads one"):
        left(three)


@pytest.mark.parametrize("offsets", ['{"logOffset":3}', "7"])
def test_a_query_that_reads_no_kafka_is_refused_with_what_it_says(scratch: Path, offsets: str) -> None:
    plan(scratch, 0, offsets)
    commit(scratch, 0)
    with pytest.raises(UsageError, match="not offsets of Spark's Kafka connector"):
        left(scratch)


def test_offsets_of_another_version_are_not_guessed_at(three: Path) -> None:
    write(three, "offsets/3", "v2\n{}\n{}")
    commit(three, 3)
    with pytest.raises(RefusedError, match="expected version v1 and a line per source, got 'v2'"):
        left(three)


def test_a_folder_that_is_no_checkpoint_is_refused(scratch: Path) -> None:
    with pytest.raises(UsageError, match="holds no planned batch"):
        left(scratch)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: plan(folder, 3, line(31, 32)),
        lambda folder: (plan(folder, 3, line(31, 32)), commit(folder, 3)),
        lambda folder: plan(folder, 2, line(21, 25)),
    ],
)
def test_a_checkpoint_that_changes_while_it_is_watched_belongs_to_a_running_query(
    three: Path, change: Callable[[Path], Any]
) -> None:
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        change(three)

    with pytest.raises(RefusedError, match="changed within 10 s: its query still runs"):
        left(three, pause)
    assert paused == [10.0]
