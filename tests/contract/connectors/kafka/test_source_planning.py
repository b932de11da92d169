"""What the source plans, asked directly and without a Spark session: bounds, limits, new partitions, loss (F30)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPlace
from confluent_kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from atonce.client.cluster import Cluster
from atonce.connectors.kafka.read import watch as source_watch
from atonce.connectors.kafka.read.stream import SCHEMA, AtOnceSource, BatchReader, StreamReader
from atonce.errors import DataLossError, UsageError
from tests.contract.client.parts import admin, eventually, fresh_topic
from tests.contract.connectors.kafka.reading import fill


def batch_reader(servers: str, **options: str) -> BatchReader:
    return AtOnceSource({"kafka.bootstrap.servers": servers, **options}).reader(SCHEMA)  # type: ignore[arg-type]


def stream_reader(servers: str, **options: str) -> StreamReader:
    return AtOnceSource({"kafka.bootstrap.servers": servers, **options}).streamReader(SCHEMA)  # type: ignore[arg-type]


def values(reader: Any, partitions: list[Any]) -> list[str]:
    return [v.decode() for part in partitions for found in reader.read(part) for v in found.column("value").to_pylist()]


def expected(numbers: range) -> list[str]:
    return [f"v{n}" for n in numbers]


def planned(reader: StreamReader, start: Any) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_an_empty_topic_gives_no_rows(embedded: str) -> None:
    reader = batch_reader(embedded, subscribe=fresh_topic(embedded))
    assert values(reader, reader.partitions()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "no-such-topic-here"}, "topic 'no-such-topic-here' does not exist"),
        ({"assign": '{"no-such-topic-here":[0]}'}, "topic 'no-such-topic-here' does not exist"),
    ],
)
def test_a_topic_that_is_not_there_is_named(embedded: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        batch_reader(embedded, **options).partitions()


def test_a_partition_that_is_not_there_is_named(embedded: str) -> None:
    topic = fresh_topic(embedded)
    with pytest.raises(UsageError, match=f"assign names {topic}/3, but topic '{topic}' has partitions 0 to 0"):
        batch_reader(embedded, assign=f'{{"{topic}":[3]}}').partitions()


def test_a_timestamp_that_no_record_has_is_refused_or_means_the_end(embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    late = {"subscribe": topic, "startingTimestamp": "9999999999999"}
    with pytest.raises(UsageError, match="no record is as young as the starting timestamp"):
        batch_reader(embedded, **late).partitions()
    for options, count in (
        ({**late, "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"subscribe": topic, "startingTimestamp": "1000"}, 10),
    ):
        reader = batch_reader(embedded, **options)
        assert len(values(reader, reader.partitions())) == count


def test_a_new_partition_is_noted_first_and_then_read_from_its_beginning(embedded: str) -> None:
    topic = fresh_topic(embedded, 1)
    fill(embedded, topic, range(10))
    reader = stream_reader(embedded, subscribePattern=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = planned(reader, start)
    assert (start, end) == ({topic: {"0": 0}}, {topic: {"0": 10}})
    next(iter(admin(embedded).create_partitions([NewPartitions(topic, 2)]).values())).result(20)
    fill(embedded, topic, range(10, 20), 1)
    noted = eventually(lambda: found if (found := planned(reader, end)) != end else None)
    assert noted == {topic: {"0": 10, "1": 0}}
    assert reader.partitions(end, noted) == []
    after = planned(reader, noted)
    assert values(reader, reader.partitions(noted, after)) == expected(range(10, 20))


def test_bytes_limit_a_batch_unless_everything_is_asked_for(embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(3000))
    reader = stream_reader(embedded, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="24k")
    start = reader.initialOffset()
    assert 100 < planned(reader, start)[topic]["0"] < 2500
    assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 3000}}


def test_too_few_records_are_waited_for_but_not_while_draining(embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "100"}
    reader = stream_reader(embedded, **options)
    assert planned(reader, reader.initialOffset()) == {topic: {"0": 0}}
    hasty = stream_reader(embedded, **options, maxTriggerDelay="0s")
    assert planned(hasty, hasty.initialOffset()) == {topic: {"0": 10}}
    reader.prepareForTriggerAvailableNow()
    assert planned(reader, reader.initialOffset()) == {topic: {"0": 10}}


def test_a_drain_does_not_see_what_comes_later(embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    reader = stream_reader(embedded, subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    fill(embedded, topic, range(10, 20))
    end = planned(reader, reader.initialOffset())
    assert end == {topic: {"0": 10}}
    assert planned(reader, end) == end


def test_a_log_that_ends_before_what_was_read_is_data_loss(embedded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F27: the topic was made again, or cut."""
    monkeypatch.setattr(source_watch, "BELIEVED_AFTER_S", 0.5)
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    with pytest.raises(DataLossError, match=rf"{topic}/0 \(read up to 99, ends at 10\)"):
        planned(stream_reader(embedded, subscribe=topic), {topic: {"0": 99}})
    patient = stream_reader(embedded, subscribe=topic, failOnDataLoss="false")
    assert planned(patient, {topic: {"0": 99}}) == {topic: {"0": 10}}


def test_partitions_that_are_gone_are_data_loss(embedded: str) -> None:
    topic = fresh_topic(embedded)
    reader = stream_reader(embedded, subscribePattern=topic)
    with pytest.raises(DataLossError, match=r"partitions that were being read are gone: vanished/0"):
        planned(reader, {topic: {"0": 0}, "vanished": {"0": 5}})


def test_removed_records_stop_the_reader_or_are_passed_over(embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(40))
    next(iter(admin(embedded).delete_records([ConfluentPlace(topic, 0, 35)]).values())).result(20)
    start, end = {topic: {"0": 20}}, {topic: {"0": 40}}
    strict, patient = (
        stream_reader(embedded, subscribe=topic),
        stream_reader(embedded, subscribe=topic, failOnDataLoss="false"),
    )
    with pytest.raises(DataLossError, match=r"offsets 20 to 34 are wanted, but only 35 to 39 are there"):
        values(strict, strict.partitions(start, end))
    assert values(patient, patient.partitions(start, end)) == expected(range(35, 40))


def test_a_replayed_batch_is_cut_the_same_way(embedded: str) -> None:
    topic = fresh_topic(embedded, 2)
    start, end = {topic: {"0": 5, "1": 0}}, {topic: {"0": 1005, "1": 10}}
    cuts = [
        [part.value for part in stream_reader(embedded, subscribe=topic, minPartitions="5").partitions(start, end)]
        for _ in range(2)
    ]
    assert cuts[0] == cuts[1] and len(cuts[0]) == 5
    with Cluster(embedded) as cluster:
        assert cluster.topic(topic) is not None
