"""Encoding before the shuffle: rows to record batches per partition, each partition with one slot."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

import pyarrow as pa
import pytest

from atonce.client.errors import ConnectionLost
from atonce.connectors.kafka.write.blobs import Encoder, Targets, TimeLimits
from atonce.connectors.kafka.write.tally import SlotTally, check
from atonce.errors import DataLossError


def encoder(**changes: Any) -> Encoder:
    values: dict[str, Any] = {"targets": Targets(partitions={"out": 4}, slots=2), "topic": "out"}
    return Encoder(**{**values, **changes})


def rows(count: int, **columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(
        {"key": [str(i) for i in range(count)], "value": [f"value {i}" for i in range(count)], **columns}
    )


def blobs(made: Encoder, *batches: Any) -> list[dict[str, Any]]:
    return [row for batch in made(batches) for row in batch.to_pylist()]


def records(found: list[dict[str, Any]], topic: str | None = None) -> int:
    return sum(row["records"] for row in found if row["data"] is not None and topic in (None, row["topic"]))


def test_every_row_is_in_one_blob_and_every_partition_has_one_slot() -> None:
    found = blobs(encoder(), rows(1000), rows(500))
    assert records(found) == 1500
    slots: dict[int, set[int]] = {}
    for row in found:
        if row["data"] is not None:
            slots.setdefault(row["partition"], set()).add(row["slot"])
    assert set(slots) == {0, 1, 2, 3}
    assert all(len(each) == 1 for each in slots.values())


def test_blobs_and_footers_add_up() -> None:
    found = blobs(encoder(), rows(1000))
    tallies = {0: SlotTally(0), 1: SlotTally(1)}
    for row in found:
        if row["data"] is None:
            tallies[row["slot"]].footer(row["run"], row["index"])
        else:
            tallies[row["slot"]].blob(row["run"], row["index"])
    check(tallies.values(), slots=2)


def test_two_executions_have_different_ids() -> None:
    assert blobs(encoder(), rows(1))[0]["run"] != blobs(encoder(), rows(1))[0]["run"]


def test_the_same_input_goes_to_the_same_partitions_again_also_without_keys() -> None:
    without = pa.RecordBatch.from_pydict({"value": [f"{i}" for i in range(100)]})
    once, again = (
        [(row["partition"], row["data"]) for row in blobs(encoder(), without) if row["data"]] for _ in range(2)
    )
    assert [partition for partition, _ in once] == [partition for partition, _ in again]
    assert len({partition for partition, _ in once}) > 1


def test_topic_comes_from_the_column_when_none_is_named() -> None:
    two = encoder(targets=Targets(partitions={"a": 2, "b": 3}, slots=5), topic=None)
    found = blobs(two, rows(6, topic=["a", "b", "a", "b", "b", "b"]))
    assert records(found, "a") == 2
    assert records(found, "b") == 4


def test_row_that_is_too_large_is_named() -> None:
    found = blobs(encoder(max_record_bytes=500), rows(2), pa.RecordBatch.from_pydict({"value": ["x", "y" * 1000]}))
    note = json.loads(found[-1]["note"])
    assert note["row"] == 3
    assert "500" in note["undeliverable"]


def test_null_topic_and_wrong_partition_are_named() -> None:
    by_column = encoder(topic=None)
    assert "topic is null" in blobs(by_column, rows(2, topic=["out", None]))[-1]["note"]
    assert "its partition 4 is not one of 0 to 3" in blobs(encoder(), rows(2, partition=[0, 4]))[-1]["note"]


def test_unknown_topic_is_told_to_the_driver() -> None:
    note = json.loads(blobs(encoder(topic=None), rows(1, topic=["new"]))[-1]["note"])
    assert note == {"unknown_topic": "new"}


def test_the_driver_is_told_of_undeliverable_rows_and_the_rest_goes_on() -> None:
    dead = encoder(targets=Targets(partitions={"out": 4, "dead": 1}, slots=3), dead_letter="dead", max_record_bytes=500)
    found = blobs(dead, pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": ["x", "y" * 1000, "z"]}))
    assert records(found, "out") == 2
    (note,) = [json.loads(row["note"]) for row in found if row["note"]]
    (dead_row,) = note["dead"]
    assert "takes" in dead_row["reason"]
    assert json.loads(dead_row["row"])["key"] == "b"


def test_explicit_partition_is_kept() -> None:
    found = blobs(encoder(), rows(4, partition=[3, 3, 0, 3]))
    counts = {row["partition"]: row["records"] for row in found if row["data"] is not None}
    assert counts == {0: 1, 3: 3}


def test_arrow_transform_runs_before_encoding() -> None:
    def twice(batch: Any) -> Any:
        return pa.Table.from_batches([batch, batch])

    assert records(blobs(encoder(transform=twice), rows(10))) == 20


def test_trouble_that_a_retry_cannot_mend_is_told_to_the_driver_and_passing_trouble_is_raised() -> None:
    """F30: raised, it would make Spark try again, and the second attempt finds its partitions leased to the first."""

    def fails(error: Exception) -> Any:
        yield rows(3)
        raise error

    told = [row for batch in encoder()(fails(DataLossError("offsets are gone"))) for row in batch.to_pylist()]
    assert json.loads(told[-1]["note"]) == {"failed": "atonce.errors.DataLossError: offsets are gone"}
    with pytest.raises(ConnectionLost):
        list(encoder()(fails(ConnectionLost("for a moment"))))


def test_records_carry_the_timestamp_column_and_minus_one_is_none() -> None:
    """-1 is Kafka's own word for a record without a time: read and sent on, it has none either."""
    times = pa.array([1_000, None, -1], pa.int64())
    found = [row["data"] for row in blobs(encoder(targets=one_partition()), rows(3, timestamp=times)) if row["data"]]
    (first, largest) = struct.unpack_from(">qq", found[0], 27)
    assert first == 1_000
    assert abs(largest - time.time() * 1000) < 60_000


def one_partition(**limits: int) -> Targets:
    return Targets(partitions={"out": 1}, slots=1, times=TimeLimits(**limits))


@pytest.mark.parametrize(
    ("away_ms", "words"),
    [(2 * 3600_000, "7199 s after now, and the topic allows 3600 s"), (-30 * 86400_000, "before now, and the topic")],
)
def test_a_timestamp_that_the_topic_would_not_take_makes_the_row_undeliverable(away_ms: int, words: str) -> None:
    targets = one_partition(after_ms=3600_000, before_ms=7 * 86400_000)
    late = pa.array([None, int(time.time() * 1000) + away_ms - 500], pa.int64())
    note = json.loads(blobs(encoder(targets=targets), rows(2, timestamp=late))[-1]["note"])
    assert note["row"] == 1
    assert words in note["undeliverable"]


def test_a_timestamp_before_1970_goes_to_the_dead_letters() -> None:
    targets = Targets(partitions={"out": 1, "dead": 1}, slots=1)
    found = blobs(encoder(targets=targets, dead_letter="dead"), rows(3, timestamp=pa.array([1, -5, 2])))
    assert records(found, "out") == 2
    (note,) = [row["note"] for row in found if row["note"]]
    assert "before 1970" in json.loads(note)["dead"][0]["reason"]
