"""Settings go by Kafka's names; what is wrong is refused with the nearest right one."""

from __future__ import annotations

import pytest

from atonce.broker.broker import log_config
from atonce.broker.config import BROKER, TOPIC, BadSetting, text_of
from atonce.broker.settings import (
    Settings,
    Source,
    checked_broker_settings,
    checked_topic_settings,
    parse_assignments,
)


def test_unknown_name_is_refused_with_the_nearest_known_ones() -> None:
    with pytest.raises(BadSetting, match=r"num\.partition: no such broker or topic setting\. Nearest: num\.partitions"):
        checked_broker_settings({"num.partition": "3"})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("num.partitions", "none", "a int, at least 1"),
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "3000000000", "a int"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleanup.policy", "delete,shred", "a list of delete, compact"),
        ("log.message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "at most 1"),
    ],
)
def test_bad_value_is_refused_with_what_would_do(name: str, value: str, wanted: str) -> None:
    with pytest.raises(BadSetting, match=wanted) as caught:
        checked_broker_settings({name: value})
    assert str(caught.value).startswith(f"{name}={value}")


def test_topic_name_given_to_the_broker_sets_its_default() -> None:
    settings = Settings(static=checked_broker_settings({"flush.messages": "500"}))
    assert settings.topic_number("flush.messages", {}) == 500
    assert settings.describe_topic("flush.messages", {}).source is Source.STATIC_BROKER


def test_assignment_needs_an_equals_sign() -> None:
    with pytest.raises(BadSetting, match="expected key=value"):
        parse_assignments(["num.partitions"])
    assert parse_assignments(["a=b=c"]) == {"a": "b=c"}


def test_topic_value_wins_over_the_brokers() -> None:
    settings = Settings(static=checked_broker_settings({"log.retention.ms": "1000"}))
    assert settings.topic_number("retention.ms", {}) == 1000
    found = settings.describe_topic("retention.ms", {"retention.ms": "5"})
    assert (found.value, found.source) == (5, Source.TOPIC)
    assert [source for _, _, source in found.synonyms] == [Source.TOPIC, Source.STATIC_BROKER, Source.DEFAULT]


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_takes_the_finest_unit_that_was_given(given: dict[str, str], milliseconds: int) -> None:
    assert Settings(static=checked_broker_settings(given)).topic_number("retention.ms", {}) == milliseconds


def test_every_default_is_accepted_by_its_own_setting() -> None:
    for setting in (*BROKER, *TOPIC):
        text = text_of(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.name


def test_null_is_no_topic_value() -> None:
    with pytest.raises(BadSetting, match="null is no value"):
        checked_topic_settings({"retention.ms": None})


def test_fsync_comes_before_the_ack_unless_told_otherwise() -> None:
    assert Settings().topic_number("flush.messages", {}) == 1


def test_journals_are_synced_and_kept_as_written_whatever_the_topics_are_told() -> None:
    lazy = Settings(static=checked_broker_settings({"log.flush.interval.messages": "500", "compression.type": "zstd"}))
    topic = log_config(lazy, "orders", {"flush.messages": "9"})
    assert (topic.flush_messages, topic.compression_type) == (9, "zstd")
    for journal in ("__consumer_offsets", "__transaction_state"):
        config = log_config(lazy, journal, {"flush.messages": "9"})
        assert (config.flush_before_ack, config.compression_type) == (True, "producer")
