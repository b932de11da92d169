"""The options of format("atonce"): names, defaults and refusals of Spark's Kafka connector."""

from __future__ import annotations

import pickle

import pytest

from atonce.client.offsets import EARLIEST, LATEST, TopicPartition
from atonce.connectors.kafka.read.options import Bound, SourceOptions, parse
from atonce.connectors.kafka.read.plan import from_json_form, ids_in, to_json_form
from atonce.errors import UsageError

SERVERS = {"kafka.bootstrap.servers": "host:9092"}


def given(streaming: bool = True, **options: str) -> SourceOptions:
    return parse({**SERVERS, "subscribe": "orders", **options}, streaming=streaming)


def test_the_defaults_are_those_of_sparks_connector_but_for_isolation_and_bytes() -> None:
    stream, batch = given(), given(streaming=False)
    assert stream.starting == Bound(everywhere=LATEST)
    assert (batch.starting, batch.ending) == (Bound(everywhere=EARLIEST), Bound(everywhere=LATEST))
    assert stream.fail_on_data_loss and not stream.headers
    assert stream.isolation == "read_committed"
    assert stream.max_offsets is None and stream.max_bytes == 512 << 20


def test_option_names_are_case_insensitive() -> None:
    assert given(StartingOffsets="earliest", INCLUDEHEADERS="TRUE").headers


def test_offsets_as_json_know_earliest_and_latest() -> None:
    found = given(startingOffsets='{"orders":{"0":23,"1":-1,"2":-2}}')
    assert found.starting.offsets == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): LATEST,
        TopicPartition("orders", 2): EARLIEST,
    }


def test_a_timestamp_wins_over_offsets() -> None:
    found = given(startingTimestamp="1700000000000", startingOffsets="earliest")
    assert found.starting == Bound(everywhere=1_700_000_000_000, by_time=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "latest"}, 'Did you mean "startingOffsets"'),
        ({"startingOffsets": "first"}, "is not earliest, latest, or JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "neither an offset nor -1"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"endingOffsets": "latest"}, "for batch reading only"),
        ({"subscribePattern": "o.*"}, "exactly one of subscribe, subscribePattern and assign"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number above zero"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is more than maxOffsetsPerTrigger=5"),
        ({"maxTriggerDelay": "soon"}, "is not a duration"),
        ({"maxBytesPerTrigger": "lots"}, "is not a size"),
        ({"failOnDataLoss": "maybe"}, "is not true or false"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets instead"),
        ({"kafka.isolation.level": "read_most"}, "is not one of: read_uncommitted, read_committed"),
        ({"kafka.sasl.passwrd": "x"}, "Did you mean 'sasl.password'"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "is not one of: error, latest"),
        ({"atonce.function": "x"}, "come together"),
    ],
)
def test_what_is_wrong_is_said_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        given(**options)
    assert words in str(raised.value)


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}])
def test_a_batch_that_could_only_be_empty_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="reads nothing in a batch query"):
        given(streaming=False, **options)


def test_missing_servers_are_said() -> None:
    with pytest.raises(UsageError, match=r"kafka.bootstrap.servers"):
        parse({"subscribe": "orders"}, streaming=True)


def test_sizes_and_durations_have_units() -> None:
    found = given(maxBytesPerTrigger="64m", maxTriggerDelay="30s")
    assert (found.max_bytes, found.max_delay_ms) == (64 << 20, 30_000)
    assert given(maxBytesPerTrigger="none").max_bytes is None


def test_options_travel_to_the_workers_and_show_no_secret() -> None:
    found = given(**{"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me", "kafka.sasl.password": "hush-hush"})
    assert pickle.loads(pickle.dumps(found)) == found
    assert "hush-hush" not in repr(found) and "sasl.password=***" in repr(found)


def test_options_without_a_meaning_here_are_taken() -> None:
    found = given(
        groupIdPrefix="x", **{"kafka.group.id": "g", "kafka.max.poll.records": "10", "fetchOffset.numRetries": "3"}
    )
    assert found == given(), "they change nothing"


def test_offsets_have_one_text_whatever_the_order() -> None:
    places = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert list(to_json_form(places)) == ["a", "b"]
    assert list(to_json_form(places)["b"]) == ["9", "10"]
    assert from_json_form(to_json_form(places)) == places
    named = to_json_form(places, {"a": "1", "b": "2", "elsewhere": "3"})
    assert from_json_form(named) == places
    assert ids_in(named) == {"a": "1", "b": "2"} and ids_in(to_json_form(places)) == {}
